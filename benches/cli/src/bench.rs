//! `coalesce bench`: how long calls take under every policy.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use coalesce_alloc::Kernels;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::timing::bench::{self, Plan, record, text};
use coalesce_bench::timing::device::DeviceName;
use coalesce_workloads::formats::source::Source;

use super::files::{InputPath, OutputFolder};
use super::input::announce;
use super::output::{folder, notice, print};
use super::profile::seconds;
use super::replay::policies;

/// Measure how long malloc and free take under every policy, on a GPU if available.
///
/// Also compares the memory that each allocator counts as reserved with the memory that the device reports as
/// used. Each workload is replayed several times: in the first replay the allocator takes memory from the device,
/// in later replays it has that memory cached. Single calls and whole replays are timed on the host; replays with
/// the driver's own pool also on the device, by events. Kernels run only with `--kernels`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce bench --device cuda:0 --out results/latest/gpu\n\nresults/FILES.md describes the columns."
)]
pub struct Args {
    /// Shapes, presets, or files as for `coalesce replay`. Default: the shapes of `cargo bench`.
    workloads: Vec<String>,
    /// Device: sim, auto (the first GPU, else the simulated device) or cuda:0.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Folder of the recorded traces; by default workloads/traces of the checkout around the current folder.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<InputPath>,
    /// Policies to measure. Default: all.
    #[arg(long = "policy", value_parser = policies())]
    policies: Vec<String>,
    /// Run a kernel after each request, 4 µs and 1 µs for each MiB of its block. Then only single calls are timed.
    #[arg(long)]
    kernels: bool,
    /// Seconds for each workload under each policy.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Start no further measurement after this many seconds.
    #[arg(long, default_value_t = 3600.0, value_parser = seconds)]
    limit: f64,
    /// Write cells.csv and latencies.csv into this folder, updated after each workload.
    #[arg(long, value_name = "FOLDER", value_parser = folder())]
    out: Option<OutputFolder>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let device = args.device.open()?;
    notice(&format!("measuring on {device}"));
    let workloads = args.workloads.iter().map(Source::named);
    workloads.for_each(|source| announce(&source));
    let plan = Plan {
        workloads: args.workloads.clone(),
        traces: args.traces.as_deref().map(Path::to_owned),
        policies: args.policies.clone(),
        kernels: args.kernels.then(Kernels::default),
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
