//! `coalesce diagnose`: what is wrong with how a program uses its memory.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use allocator::bytes;
use allocator::driver::sim::address::AddressPolicy;
use anyhow::Context;
use benches::diagnose::{self, Evidence, Subject};
use workloads::catalog;
use workloads::op::Workload;
use workloads::trace::TraceFile;

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
    /// A CSV as described in workloads/traces/README.md, or a preset of `coalesce workloads`.
    input: PathBuf,
    /// The settings it runs with, written as for PYTORCH_CUDA_ALLOC_CONF. That variable itself is not read.
    #[arg(long, default_value = "", hide_default_value = true)]
    conf: String,
    /// Memory of the device.
    #[arg(long, default_value = "80GiB", value_parser = bytes::parse)]
    capacity: u64,
    /// Where the device places what it gives: up, down or firstfit.
    #[arg(long, default_value = "up", value_parser = str::parse::<AddressPolicy>)]
    addresses: AddressPolicy,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let workload = workload(&args.input)?;
    let evidence = Evidence::gather(Subject {
        workload: &*workload,
        recording: None,
        conf: &args.conf,
        capacity: args.capacity,
        address_policy: args.addresses,
    })?;
    let findings = diagnose::diagnose(&evidence);
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => diagnose::text(&findings),
    };
    stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The trace in a file, or the preset of that name if there is no such file.
fn workload(input: &Path) -> anyhow::Result<Box<dyn Workload>> {
    let name = input.to_string_lossy();
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name && !input.exists() {
        let preset = catalog::preset(&name, toml::Table::new());
        return preset.with_context(|| format!("there is no file '{name}' either"));
    }
    Ok(Box::new(TraceFile::open(input)?))
}
