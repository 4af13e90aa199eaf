//! `coalesce convert`: from one format of programs to another.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::convert::{self, Converted, Format, Replayed};
use coalesce_bench::measure::results;
use coalesce_workloads::formats::file::gzip;
use coalesce_workloads::input::Input;

use super::output::print_bytes;
use super::replay::policies;

/// Write a program in the format of another tool.
///
/// What is read: memory snapshots of PyTorch, logs of RMM, instances of MiniMalloc and traces as in
/// workloads/traces/README.md, plain or compressed with gzip, whatever they are called; and the presets
/// of `coalesce workloads`.
///
/// A program is a sequence of requests. `trace`, `rmm` and `minimalloc` have these and nothing else; a
/// `snapshot` has what an allocator made of them: they are replayed first, with --policy and --conf on a
/// simulated device.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce convert snapshot.pickle program.csv.gz\n  coalesce convert rmm_log.txt program.csv\n  coalesce convert resnet50.csv.gz resnet50.csv --to minimalloc\n  coalesce convert program.csv with_expandable.pickle --conf expandable_segments:True\n  python -m torch.cuda._memory_viz trace_plot with_expandable.pickle -o with_expandable.html"
)]
pub struct Args {
    /// A file, or a preset of `coalesce workloads`.
    input: String,
    /// Where to write it; standard output if nowhere.
    out: Option<PathBuf>,
    /// The format. By default the name of OUT says it: .pickle or .pkl is a snapshot, .log or .txt a log
    /// of RMM, .csv a trace; each with .gz behind it is compressed.
    #[arg(long)]
    to: Option<To>,
    /// The device of a snapshot of several.
    #[arg(long, value_name = "NUMBER")]
    recorded_device: Option<u32>,
    /// To `minimalloc`: sizes are rounded up to multiples of so many bytes, as PyTorch rounds them.
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    unit: u64,
    /// To `snapshot`: the allocator.
    #[arg(long, default_value = "pytorch", value_parser = policies())]
    policy: String,
    /// To `snapshot`: its settings, written as for PYTORCH_CUDA_ALLOC_CONF. That variable itself is not
    /// read.
    #[arg(long, default_value = "", hide_default_value = true)]
    conf: String,
    /// To `snapshot`: memory of the device.
    #[arg(long, default_value = "80GiB", value_parser = bytes::parse)]
    capacity: u64,
    /// To `snapshot`: where the device places what it gives: up, down or firstfit.
    #[arg(long, default_value = "up", value_parser = str::parse::<AddressPolicy>)]
    addresses: AddressPolicy,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// A trace as in workloads/traces/README.md.
    Trace,
    /// A log as of RMM's logging_resource_adaptor, which its replay benchmark reads.
    Rmm,
    /// Offline placement: google/minimalloc, `coalesce place` and the solvers that read such files. A
    /// line for each allocation: its number, when it is made and freed, counted in such events, and its
    /// bytes.
    Minimalloc,
    /// A memory snapshot, as torch.cuda.memory._dump_snapshot writes it.
    Snapshot,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let format = args.format()?;
    let input = Input::open(&args.input, args.recorded_device)?;
    for remark in &input.remarks {
        eprintln!("coalesce: {remark}");
    }
    let Converted { bytes, left_out } = convert::convert(&*input.workload, &format)?;
    if left_out > 0 {
        eprintln!("coalesce: {left_out} operations were left out: the format has none like them");
    }
    let Some(path) = &args.out else {
        print_bytes(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    };
    let is_packed = path.extension().is_some_and(|ending| ending == "gz");
    let bytes = if is_packed { gzip(&bytes)? } else { bytes };
    results::write(path, &bytes)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn format(&self) -> anyhow::Result<Format<'_>> {
        let named = self.out.as_deref().and_then(To::of_name);
        let Some(to) = self.to.or(named) else {
            bail!(
                "which format? The name of the file to write tells if it ends with .csv, .pickle or \
                 .log; otherwise say --to trace, rmm, minimalloc or snapshot"
            );
        };
        Ok(match to {
            To::Trace => Format::Trace,
            To::Rmm => Format::RmmLog,
            To::Minimalloc => Format::MiniMalloc { unit: self.unit },
            To::Snapshot => Format::Snapshot(Replayed {
                policy: &self.policy,
                conf: &self.conf,
                capacity: self.capacity,
                address_policy: self.addresses,
            }),
        })
    }
}

impl To {
    /// What a file of that name would be.
    fn of_name(path: &Path) -> Option<Self> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let (_, ending) = name.rsplit_once('.')?;
        match ending {
            "csv" => Some(Self::Trace),
            "log" | "txt" => Some(Self::Rmm),
            "pickle" | "pkl" => Some(Self::Snapshot),
            _ => None,
        }
    }
}
