//! `coalesce diagnose`: problems in a workload's memory use.

use std::process::ExitCode;

use coalesce_advisor::diagnose::{self, Evidence, Subject};
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::capacity::USUAL;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::input::Input;

use super::output::print;

/// Find problems in a workload's memory use, and suggest remedies.
///
/// Replays the workload under its settings and looks for common mistakes and known pitfalls of PyTorch's
/// allocator. If a setting can help, tries it. Lists findings by the memory they cost, with the figures behind them.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce diagnose workloads/traces/accum8_gpt2s_forgot_zero_grad.csv.gz"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or gzip-compressed; or the name of a preset.
    workload: String,
    /// Current settings, in the format of PYTORCH_CUDA_ALLOC_CONF. Default: those in the snapshot. The variable
    /// itself is not read.
    #[arg(long)]
    conf: Option<String>,
    /// Device memory. Default: the memory at the time of an out-of-memory error in the snapshot, else 80GiB.
    #[arg(long, value_parser = bytes::parse_memory)]
    capacity: Option<u64>,
    /// Device number, if the snapshot covers several devices. Default: the device with the most entries.
    #[arg(long)]
    recorded_device: Option<u32>,
    /// Where the simulated device places memory: up, down or firstfit. Default: as recorded in the snapshot, else up.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    addresses: Option<AddressPolicy>,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = Input::open(&args.workload, args.recorded_device)?;
    let recording = input.recording.as_ref();
    let recorded = recording.and_then(|recording| recording.conf.as_deref());
    let capacity = recording.and_then(Recording::capacity);
    let evidence = Evidence::gather(Subject {
        workload: input.workload.as_ref(),
        recording,
        conf: args.conf.as_deref().or(recorded).unwrap_or(""),
        capacity: args.capacity.or(capacity).unwrap_or(USUAL),
        address_policy: args.addresses.unwrap_or_else(|| input.address_policy()),
    })?;
    let findings = diagnose::diagnose(&evidence);
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => diagnose::text(&findings),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
