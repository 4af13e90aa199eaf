//! `coalesce bench`: every policy timed on a device.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::timing::bench::{self, Plan, record, text};
use coalesce_bench::timing::device::DeviceName;

use super::output::print;
use super::profile::seconds;
use super::replay::policies;

/// Time the calls of every policy, on a GPU where there is one, and hold what it says it holds against what
/// the device says.
///
/// Each program is walked several times: in the first walk the allocator takes its memory, in the further
/// ones it has it. A call is timed on the host. So is a whole walk, until the device is done with it; that of
/// the driver's own pool also on the device's clock, by events. No kernels run meanwhile.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce bench --device cuda:0 --out results/latest/gpu\n\nThe columns are described in results/README.md."
)]
pub struct Args {
    /// What is replayed: names of shapes, presets, or files as for `coalesce replay`. If there are none: the
    /// shapes of `cargo bench`.
    programs: Vec<String>,
    /// What is measured on: sim, auto (the first GPU, or else the simulated device) or cuda:0.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Folder of the recorded traces; by default workloads/traces of the checkout around the current folder.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// Only these allocators.
    #[arg(long = "policy", value_parser = policies())]
    policies: Vec<String>,
    /// Seconds for each program with each policy.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Begin no program with any policy after so many seconds.
    #[arg(long, default_value_t = 3600.0, value_parser = seconds)]
    limit: f64,
    /// Write cells.csv and latencies.csv into this folder, after each program what there is.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let device = args.device.open()?;
    eprintln!("coalesce: measured on {device}");
    let plan = Plan {
        programs: args.programs.clone(),
        traces: args.traces.clone(),
        policies: args.policies.clone(),
        time: Duration::from_secs_f64(args.seconds),
        until: Deadline::after(Some(Duration::from_secs_f64(args.limit))),
    };
    let all = bench::run(device, &plan, |all| match &args.out {
        Some(folder) => record::write(all, folder),
        None => Ok(()),
    })?;
    print(&text::of(&all))?;
    Ok(ExitCode::SUCCESS)
}
