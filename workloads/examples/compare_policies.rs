//! Runs one preset of `workloads/src/presets.toml` under several policies:
//! `cargo run -p coalesce-workloads --example compare_policies [PRESET]`
use std::error::Error;

use coalesce_alloc::{SimConfig, SimDevice, registry};

use coalesce_workloads::measure::Measures;
use coalesce_workloads::presets;
use coalesce_workloads::replay::replay;

fn main() -> Result<(), Box<dyn Error>> {
    let named = std::env::args().nth(1);
    let preset = named.as_deref().unwrap_or("fragmentation_small");
    let workload = presets::build(preset, Default::default())?;

    println!(
        "{:20} {:>12} {:>10} {:>12}",
        preset, "reserved MiB", "efficiency", "device calls"
    );
    for (name, settings) in [
        ("pytorch", ""),
        ("pytorch", "expandable_segments:True"),
        ("cuda_async", ""),
        ("tlsf", ""),
        ("direct", ""),
    ] {
        let device = SimDevice::new(&SimConfig::with_capacity(80 << 30));
        let mut allocator = registry::build(name, device, settings)?;
        replay(&*workload, &mut *allocator, &mut ())?;
        let measures = Measures::of(allocator.stats());
        let reserved = measures.peak_reserved_bytes >> 20;
        let efficiency = measures.efficiency().unwrap_or(1.0);
        let calls = measures.device_allocs + measures.device_frees;
        println!("{name:20} {reserved:12} {efficiency:10.3} {calls:12}  {settings}");
    }
    Ok(())
}
