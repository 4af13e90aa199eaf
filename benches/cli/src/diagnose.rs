//! `coalesce diagnose`: what is wrong with how a program uses its memory.

use std::process::ExitCode;

use coalesce_advisor::diagnose::{self, Evidence, Subject};
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::capacity::USUAL;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::input::Input;

use super::output::print;

/// Say what is wrong with how a program uses its memory, and what helps.
///
/// The program is replayed with its settings; known traps of PyTorch's allocator and common mistakes are
/// looked for, and where another setting is the remedy, it is tried. What is found is told with the
/// figures it rests on, the heaviest first.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce diagnose workloads/traces/accum8_gpt2s_forgot_zero_grad.csv.gz"
)]
pub struct Args {
    /// A memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot), a trace as described in
    /// workloads/traces/README.md, or the name of a preset.
    program: String,
    /// The settings it runs with, written as for PYTORCH_CUDA_ALLOC_CONF, if they are not known from the
    /// snapshot. That variable itself is not read.
    #[arg(long)]
    conf: Option<String>,
    /// Memory of the device. If it is not given: what there was when a request failed, if the snapshot
    /// has one that did; otherwise 80GiB.
    #[arg(long, value_parser = bytes::parse)]
    capacity: Option<u64>,
    /// Which device, of a snapshot of several. If it is not given: the one on which most happened.
    #[arg(long)]
    recorded_device: Option<u32>,
    /// Where the device places what it gives: up, down or firstfit. If it is not given: as the device of
    /// the snapshot did, else up.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    addresses: Option<AddressPolicy>,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = Input::open(&args.program, args.recorded_device)?;
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
