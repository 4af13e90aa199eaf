//! Replays a trace through PyTorch's allocator and prints its memory summary:
//! `cargo run -p coalesce-workloads --example replay_trace [TRACE] [PYTORCH_CUDA_ALLOC_CONF]`

use std::error::Error;

use coalesce_alloc::stats::summary::memory_summary;
use coalesce_alloc::{PyTorch, Settings, SimConfig, SimDevice};
use coalesce_workloads::Workload;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::replay::replay;

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/traces/gpt2_small_amp_foreach.csv.gz"
);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let trace = TraceFile::open(args.next().as_deref().unwrap_or(TRACE))?;
    let settings = Settings::from_conf(&args.next().unwrap_or_default())?;

    let device = SimDevice::new(&SimConfig::with_capacity(80 << 30));
    let mut allocator = PyTorch::new(device, settings);
    let tally = replay(&trace, &mut allocator, &mut ())?;

    let efficiency = Measures::of(allocator.stats()).efficiency();
    println!(
        "{}: {} events, {} failed",
        trace.name(),
        tally.events,
        tally.ooms
    );
    println!(
        "peak requested / peak reserved: {:.3}",
        efficiency.unwrap_or(1.0)
    );
    println!("{}", memory_summary(allocator.stats(), 0, true));
    Ok(())
}
