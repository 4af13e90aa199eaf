//! The part of `cargo bench` that needs a GPU: measures every policy on it, with the memory that the device reports.
//!
//! Without a GPU it prints a message and does nothing. `COALESCE_DEVICE` names the GPU; `sim` skips this part. Writes
//! `gpu/cells.csv` and `gpu/latencies.csv` into the results folder.

mod plain;

use std::io::{Write, stdout};
use std::time::Duration;

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::results;
use coalesce_bench::timing::bench::{self, Plan, record, text};
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::machine;

fn main() -> anyhow::Result<()> {
    if plain::is_plain("gpu") {
        run()?;
    }
    Ok(())
}

fn run() -> anyhow::Result<()> {
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
    let folder = results::folder()?.join("gpu");
    results::write(&folder.join("machine.txt"), machine.as_bytes())?;
    let plan = Plan {
        workloads: Vec::new(),
        traces: None,
        policies: Vec::new(),
        kernels: None,
        time: Duration::from_secs(1),
        until: Deadline::after(None),
    };
    let all = bench::run(device, &plan, |all| record::write(all, &folder))?;
    stdout().write_all(text::of(&all).as_bytes())?;
    Ok(())
}
