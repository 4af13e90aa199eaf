//! `coalesce schema`: the form of the JSON that other commands print.

use std::process::ExitCode;

use clap::ValueEnum;
use coalesce_advisor::advise::JobAdvice;
use coalesce_advisor::difference::Difference;
use coalesce_advisor::{Advice, Finding};
use coalesce_bench::measure::record::Row;
use coalesce_bench::report::compare::Comparison;
use coalesce_bench::report::summary::Summary;
use schemars::schema_for;

use super::output::print_json;
use super::{place, policies, realism, replay, verify, workloads};

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
    /// `coalesce compare`
    Compare,
    /// `coalesce diagnose`
    Diagnose,
    /// `coalesce diff`
    Diff,
    /// `coalesce place`
    Place,
    /// `coalesce policies`
    Policies,
    /// `coalesce realism`
    Realism,
    /// `coalesce replay`
    Replay,
    /// `coalesce report`
    Report,
    /// `coalesce summary`
    Summary,
    /// `coalesce verify`
    Verify,
    /// `coalesce workloads`
    Workloads,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let schema = match args.output {
        Output::Advise => schema_for!(Advice),
        Output::Job => schema_for!(JobAdvice),
        Output::Compare => schema_for!(Comparison),
        Output::Diagnose => schema_for!(Vec<Finding>),
        Output::Diff => schema_for!(Difference),
        Output::Place => schema_for!(place::PlaceReport),
        Output::Policies => schema_for!(Vec<policies::ListedPolicy>),
        Output::Realism => schema_for!(Vec<realism::Realism>),
        Output::Replay => schema_for!(replay::Report),
        Output::Report => schema_for!(Vec<Row>),
        Output::Summary => schema_for!(Summary),
        Output::Verify => schema_for!(Vec<verify::VerifiedDevice>),
        Output::Workloads => schema_for!(workloads::Listed),
    };
    print_json(&schema)?;
    Ok(ExitCode::SUCCESS)
}
