//! `coalesce summary`: the effect of each setting over all workloads.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use coalesce_bench::measure::record::{self, RECORDED, Row};
use coalesce_bench::measure::results;
use coalesce_bench::report::summary;

use super::output::print;

/// Summarize the effect of each setting over all workloads, compared with a baseline.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce summary results/2026-11-20/findings.csv --baseline default"
)]
pub struct Args {
    /// A table of results [default: default.csv in the newest folder in results/ of the checkout around the
    /// current folder].
    results: Option<PathBuf>,
    /// The setting to compare the others with.
    #[arg(long, default_value = "default")]
    baseline: String,
    /// Workload family; `recorded` for traces.
    #[arg(long, default_value = RECORDED)]
    family: String,
    /// Capacity, such as 1TiB, 110% or least. Default: all.
    #[arg(long)]
    capacity: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = match &args.results {
        Some(path) => path.clone(),
        None => results::newest()?.join("default.csv"),
    };
    let wanted = |row: &Row| {
        let capacity = args.capacity.as_ref();
        row.family == args.family && capacity.is_none_or(|capacity| row.capacity == *capacity)
    };
    let rows: Vec<Row> = record::read_file(&path)?
        .into_iter()
        .filter(wanted)
        .collect();
    ensure!(
        !rows.is_empty(),
        "{}: no rows match --family and --capacity",
        path.display()
    );
    let summaries =
        summary::summarize(&rows, &args.baseline).with_context(|| path.display().to_string())?;
    print(&summary::text(&summaries, &args.baseline))?;
    Ok(ExitCode::SUCCESS)
}
