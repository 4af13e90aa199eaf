//! `coalesce diff`: what grew between two workloads.

use std::process::ExitCode;

use coalesce_advisor::difference::{Compared, Difference};
use coalesce_workloads::formats::source::Source;

use super::conditions::ConditionFlags;
use super::files::OutputFile;
use super::input;
use super::output::{self, is_stdout, print};

/// Compare the memory of two workloads at their peaks.
///
/// Replays each workload under its own settings and reports what grew: by line of the program, by category and
/// by stream, and whether the program requests more or the allocator needs more for the same requests. The two
/// may have different formats and come from different releases; notes say where that limits the comparison.
/// Lines are matched by function and file, so that edits elsewhere in a file do not matter.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce diff workloads/traces/llama1b_bf16.csv.gz workloads/traces/llama1b_bf16_ckpt.csv.gz"
)]
pub struct Args {
    /// The first workload: a PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a
    /// MiniMalloc instance, plain or compressed with gzip, xz, zstd or zip; the name of a preset; or `-` for standard
    /// input.
    #[arg(value_parser = input::workload)]
    a: Source,
    /// The second workload.
    #[arg(value_parser = input::workload)]
    b: Source,
    /// Flags that replace the recorded conditions of both.
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Print a JSON object, which `coalesce schema diff` describes. With a file, write it there and print the text
    /// too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<OutputFile>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.json {
        output::ensure_writable(path)?;
    }
    let open = |workload| args.conditions.open_for_reference(workload);
    let (before, after) = (open(&args.a)?, open(&args.b)?);
    let [a, b] = [&args.a, &args.b].map(|workload| workload.path().to_string_lossy());
    let [before, after] = [(&before, &a), (&after, &b)].map(|(opened, name)| Compared {
        name,
        subject: opened.subject(None),
    });
    let difference = Difference::between(&before, &after)?;
    if !args.json.as_deref().is_some_and(is_stdout) {
        print(&difference.text())?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &difference)?;
    }
    Ok(ExitCode::SUCCESS)
}
