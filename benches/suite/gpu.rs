//! The part of `cargo bench` that needs a GPU: measures every policy on it, with the memory that the device reports.
//!
//! Without a GPU it does nothing. `COALESCE_DEVICE` names the GPU; `sim` skips this part. Writes `gpu/cells.csv` and
//! `gpu/latencies.csv` into the results folder.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::results;
use coalesce_bench::timing::bench::{self, Plan, record, text};
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::machine;

/// The time for each workload and policy.
const TIME: Duration = Duration::from_millis(300);

/// Measures the policies, unless there is no GPU.
///
/// # Errors
/// If the GPU that is named cannot be used, or the results cannot be written.
pub fn run(folder: &Path) -> anyhow::Result<()> {
    let device = DeviceName::from_environment(DeviceName::Auto)?.open()?;
    let machine = match &device {
        Device::Sim(reason) => {
            if let Some(reason) = reason {
                writeln!(stdout(), "gpu: no GPU to measure on: {reason}")?;
            }
            return Ok(());
        }
        Device::Cuda(device) => machine::with_gpu(device),
    };
    let folder = folder.join("gpu");
    results::write(&folder.join("machine.txt"), machine.as_bytes())?;
    let plan = Plan {
        workloads: Vec::new(),
        traces: None,
        policies: Vec::new(),
        kernels: None,
        time: TIME,
        until: Deadline::after(None),
    };
    let all = bench::run(device, &plan, |all| record::write(all, &folder))?;
    stdout().write_all(text::of(&all).as_bytes())?;
    Ok(())
}
