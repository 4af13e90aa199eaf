//! `coalesce schema`: the form of the JSON that other commands print.

use std::process::ExitCode;

use clap::ValueEnum;
use coalesce_advisor::advise::JobAdvice;
use coalesce_advisor::difference::Difference;
use coalesce_advisor::present::Present;
use coalesce_advisor::profile::ProfileAnswer;
use coalesce_advisor::texts::Explanation;
use coalesce_advisor::{Advice, Finding};
use coalesce_bench::measure::record::{self, Row};
use coalesce_bench::report::compare::Comparison;
use coalesce_bench::report::summary::Summary;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::output::print_json;
use super::{fits, place, policies, realism, replay, verify, workloads};

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
    /// `coalesce advise` with a text
    Explanation,
    /// `coalesce advise` with what a profiler recorded
    Profile,
    /// `coalesce advise` with a snapshot that has no history
    Present,
    /// `coalesce compare`
    Compare,
    /// `coalesce diagnose`
    Diagnose,
    /// `coalesce diff`
    Diff,
    /// `coalesce fits`
    Fits,
    /// `coalesce fits --json` with several values
    FitsTable,
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
        Output::Advise => schema::<Advice>(),
        Output::Job => schema::<JobAdvice>(),
        Output::Profile => schema::<ProfileAnswer>(),
        Output::Present => schema::<Present>(),
        Output::Compare => schema::<Comparison>(),
        Output::Explanation => schema::<Explanation>(),
        Output::Diagnose => schema::<Vec<Finding>>(),
        Output::Diff => schema::<Difference>(),
        Output::Fits => schema::<fits::FitsReport>(),
        Output::FitsTable => schema::<fits::FitsTable>(),
        Output::Place => schema::<place::PlaceReport>(),
        Output::Policies => schema::<Vec<policies::ListedPolicy>>(),
        Output::Realism => schema::<Vec<realism::Realism>>(),
        Output::Replay => without(schema::<replay::Report>(), "/required", replay::is_printed),
        Output::Report => without(
            schema::<Vec<Row>>(),
            "/$defs/Row/required",
            record::is_stated,
        ),
        Output::Summary => schema::<Summary>(),
        Output::Verify => schema::<Vec<verify::VerifiedDevice>>(),
        Output::Workloads => schema::<workloads::Listed>(),
    };
    print_json(&schema)?;
    Ok(ExitCode::SUCCESS)
}

/// The schema of what a type is written as.
fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::default().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

/// The schema without the requirement of fields that are not always printed.
fn without(mut schema: Schema, required: &str, is_printed: fn(&str) -> bool) -> Schema {
    let fields = schema.pointer_mut(required).and_then(Value::as_array_mut);
    if let Some(fields) = fields {
        fields.retain(|field| field.as_str().is_some_and(is_printed));
    }
    schema
}
