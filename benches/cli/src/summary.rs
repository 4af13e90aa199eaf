//! `coalesce summary`: the effect of each policy and setting over all workloads.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use coalesce_bench::measure::record;
use coalesce_bench::measure::results;
use coalesce_bench::report::{spreadsheet, summary};
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::formats::source::Source;

use super::files::{InputPath, OutputFile};
use super::input::source;
use super::output::{self, print_answer};

/// Compare each policy and setting with one of them, over all workloads.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce summary policies.csv --against pytorch/expand --capacity 1TiB\n  coalesce summary policies.csv --xlsx summary.xlsx"
)]
pub struct Args {
    /// A table of results, or `-` for standard input [default: default.csv in the newest folder in results/ of the
    /// checkout around the current folder].
    results: Option<InputPath>,
    /// Compare the others with this policy and setting, on the same device. The policy can be omitted if only one
    /// policy has the setting. Default: pytorch/default if the table has it, else those of the first row.
    #[arg(long, value_name = "POLICY/SETTING")]
    against: Option<String>,
    /// Workload family; `recorded` for traces, `all` for every workload. Default: the traces if there are any, else
    /// all.
    #[arg(long)]
    family: Option<String>,
    /// Capacity, such as 1TiB, 110% or least. Default: all.
    #[arg(long)]
    capacity: Option<String>,
    /// Print a JSON object, which `coalesce schema summary` describes.
    #[arg(long)]
    json: bool,
    /// Also write the figures of each workload as a spreadsheet: workloads as rows, policies as columns, and all rows
    /// of the table.
    #[arg(long, value_name = "FILE.xlsx", value_parser = spreadsheet_name)]
    xlsx: Option<OutputFile>,
}

/// A spreadsheet must not replace the table that it is made from.
fn spreadsheet_name(text: &str) -> Result<OutputFile, String> {
    match Path::new(text).extension() {
        Some(extension) if extension.eq_ignore_ascii_case("xlsx") => {
            Ok(OsString::from(text).into())
        }
        _ => Err("expected a file name that ends with .xlsx".to_owned()),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.xlsx {
        output::ensure_folder(path)?;
    }
    let table = match &args.results {
        Some(path) => source(path),
        None => Source::from(results::newest()?.join("default.csv")),
    };
    let rows = record::read_file(table.clone())?;
    let shown = || table.to_string();
    let (mut rows, left_out) = summary::select(rows, args.family.as_deref()).with_context(shown)?;
    if let Some(capacity) = &args.capacity {
        let known: BTreeSet<String> = rows.iter().map(|row| row.capacity.clone()).collect();
        rows.retain(|row| row.capacity == *capacity);
        ensure!(
            !rows.is_empty(),
            "{}: no rows match --capacity {}",
            shown(),
            Unknown::new(capacity, known)
        );
    }
    let against = args.against.as_deref();
    let summary = summary::summarize(&rows, against, left_out).with_context(shown)?;
    if let Some(path) = &args.xlsx {
        let sheets = spreadsheet::xlsx(&rows, &summary).with_context(shown)?;
        output::write(path, &sheets)?;
    }
    print_answer(args.json, &summary, || summary::text(&summary))?;
    Ok(ExitCode::SUCCESS)
}
