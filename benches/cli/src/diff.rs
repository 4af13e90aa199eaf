//! `coalesce diff`: what grew between two workloads.

use std::path::PathBuf;
use std::process::ExitCode;

use coalesce_advisor::conditions::Conditions;
use coalesce_advisor::difference::{Compared, Difference};
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::Input;

use super::conditions::ConditionFlags;
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
    /// MiniMalloc instance, plain or compressed with gzip, xz or zstd; the name of a preset; or `-` for standard
    /// input.
    a: String,
    /// The second workload.
    b: String,
    /// Flags that replace the recorded conditions of both.
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Print a JSON object, which `coalesce schema diff` describes. With a file, write it there and print the text
    /// too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.json {
        output::ensure_writable(path)?;
    }
    let (before, after) = (Side::of(&args.a, args)?, Side::of(&args.b, args)?);
    let difference = Difference::between(&before.compared(), &after.compared())?;
    if !args.json.as_deref().is_some_and(is_stdout) {
        print(&difference.text())?;
    }
    if let Some(path) = &args.json {
        output::write_json(path, &difference)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One of the two workloads and the conditions of its replay.
struct Side {
    name: String,
    input: Input,
    conditions: Conditions,
}

impl Side {
    fn of(name: &str, args: &Args) -> anyhow::Result<Self> {
        let (input, conditions) = args.conditions.open_for_reference(name)?;
        Ok(Self {
            name: Source::named(name).path().to_string_lossy().into_owned(),
            input,
            conditions,
        })
    }

    fn compared(&self) -> Compared<'_> {
        Compared {
            name: &self.name,
            subject: self.conditions.subject(&self.input),
        }
    }
}
