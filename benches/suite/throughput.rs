//! `cargo bench --bench throughput`: the speed of the reference for each shape of workload.
//!
//! By default the device is simulated and its calls take no time, so this measures the allocator alone. With
//! `COALESCE_DEVICE=cuda:0` or `auto` it runs on a GPU, and the benchmarks carry its name. results/METHODOLOGY.md says how
//! often an unchanged program is flagged, and how to see smaller changes.

use std::time::Duration;

use anyhow::Context;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{Driver, DriverError};
use coalesce_alloc::error::Error;
use coalesce_alloc::settings::Settings;
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::shapes;
use coalesce_bench::timing::walk::Walk;

#[path = "pairs.rs"]
mod pairs;

use pairs::{Effort, Pairs};

/// Enough walks to find each part of a walk undisturbed once. They take about 0.1 s.
const EFFORT: Effort = Effort {
    warm_up: Duration::from_millis(200),
    measurement: Duration::from_secs(2),
    pairs: 300_000,
};

const SETTINGS: [(&str, &str); 2] = [("default", ""), ("expandable", "expandable_segments:True")];

/// Runs the benchmarks that the arguments select.
///
/// # Errors
/// If a workload cannot be read, the device cannot be opened, an allocator fails, or no benchmark matches.
pub fn main() -> anyhow::Result<()> {
    let mut pairs = Pairs::new(EFFORT);
    match DeviceName::from_environment(DeviceName::Sim)?.open()? {
        Device::Sim(_) => {
            let device = || SimDevice::new(&SimConfig::with_capacity(1 << 40));
            shapes_on(&mut pairs, "", device, |_| Ok(()))?;
        }
        // Keeps the CUDA context alive, so that its creation is not measured.
        Device::Cuda(open) => {
            let number = open.ordinal();
            let device = || {
                let device = CudaDevice::open(number, StreamHandles::Numbered);
                device.expect("the GPU is gone")
            };
            let on = format!("cuda:{number}/");
            shapes_on(&mut pairs, &on, device, CudaDevice::synchronize_device)?;
        }
    }
    pairs.check(std::env::args().skip(1))
}

/// Measures all shapes under all settings, each on a new device. `settle` waits until the device has completed a walk.
fn shapes_on<D: Driver>(
    pairs: &mut Pairs,
    on: &str,
    device: impl Fn() -> D,
    settle: impl Fn(&mut D) -> Result<(), DriverError>,
) -> anyhow::Result<()> {
    for shape in shapes::NAMES {
        let workload = shapes::find(shape, None)?.context("NAMES are shapes")?;
        let walk = Walk::prepare(&*workload)?;
        for (name, conf) in SETTINGS {
            let settings = Settings::from_conf(conf).expect("SETTINGS are valid");
            let mut allocator = PyTorch::new(device(), settings);
            let name = format!("{on}{name}");
            let timed = pairs.time((shape, &name), &walk, &mut allocator, |allocator| {
                settle(allocator.driver_mut()).map_err(Error::from)
            });
            match timed {
                Err(error) if matches!(error.downcast_ref(), Some(Error::OutOfMemory(_))) => {
                    eprintln!("throughput: skipping {on}{shape}: out of memory");
                    break;
                }
                timed => timed?,
            };
        }
    }
    Ok(())
}
