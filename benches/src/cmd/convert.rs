//! `coalesce convert`: a trace in the format of another tool.

use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use benches::minimalloc::{self, Instance};
use benches::results;
use clap::ValueEnum;
use workloads::catalog;
use workloads::foresight;
use workloads::op::Workload;
use workloads::trace::TraceFile;

/// Write a trace in the format of another tool.
///
/// `minimalloc` has a line `id,lower,upper,size` for each allocation that takes memory: its number, when
/// it is made and freed, counted in such events, and its bytes. What is never freed goes after the end.
/// Streams are left out: what is planned is the order in which the program asks. `coalesce place` reads
/// it.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce convert workloads/traces/resnet50_fp32_fixed224.csv.gz --to minimalloc --out resnet50.csv"
)]
pub struct Args {
    /// A CSV as described in workloads/traces/README.md, or a preset of `coalesce workloads`.
    trace: PathBuf,
    /// The format.
    #[arg(long)]
    to: Format,
    /// Sizes are rounded up to multiples of so many bytes, as PyTorch rounds them.
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    unit: u64,
    /// Where to write it, instead of standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Offline placement: google/minimalloc and the solvers that read its files.
    Minimalloc,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let workload = workload(&args.trace)?;
    let Format::Minimalloc = args.to;
    let instance = instance(&*workload, args.unit)?;
    match &args.out {
        Some(path) => {
            let mut csv = Vec::new();
            minimalloc::write(&instance, None, &mut csv)?;
            results::write(path, &csv)?;
        }
        None => {
            let mut out = BufWriter::new(stdout().lock());
            minimalloc::write(&instance, None, &mut out)
                .and_then(|()| out.flush())
                .context("cannot write to standard output")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The trace in a file, or the preset of that name if there is no such file.
fn workload(trace: &Path) -> anyhow::Result<Box<dyn Workload>> {
    let name = trace.to_string_lossy();
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name && !trace.exists() {
        let preset = catalog::preset(&name, toml::Table::new());
        return preset.with_context(|| format!("there is no file '{name}' either"));
    }
    Ok(Box::new(TraceFile::open(trace)?))
}

/// What takes memory, numbered.
fn instance(workload: &dyn Workload, unit: u64) -> anyhow::Result<Instance> {
    let buffers = foresight::of(workload)?.buffers(unit);
    let ids = (0..buffers.len()).map(|id| id.to_string()).collect();
    Ok(Instance { ids, buffers })
}
