//! `coalesce schema`: the form of the JSON that other commands print.

use std::process::ExitCode;

use clap::ValueEnum;
use coalesce_advisor::advise::JobAdvice;
use coalesce_advisor::difference::Difference;
use coalesce_advisor::{Advice, Finding};
use schemars::schema_for;

use super::output::print;
use super::{replay, verify};

/// Print the JSON Schema of what a command prints with --json.
///
/// Within a format number, fields are added but never removed or changed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce schema advise")]
pub struct Args {
    /// The output.
    #[arg(value_enum)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// `coalesce advise` with one workload
    Advise,
    /// `coalesce advise` with several workloads
    Job,
    /// `coalesce diagnose`
    Diagnose,
    /// `coalesce diff`
    Diff,
    /// `coalesce replay`
    Replay,
    /// `coalesce verify`
    Verify,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let schema = match args.output {
        Output::Advise => schema_for!(Advice),
        Output::Job => schema_for!(JobAdvice),
        Output::Diagnose => schema_for!(Vec<Finding>),
        Output::Diff => schema_for!(Difference),
        Output::Replay => schema_for!(replay::Report),
        Output::Verify => schema_for!(Vec<verify::VerifiedDevice>),
    };
    print(&(serde_json::to_string_pretty(&schema)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
