//! `coalesce merge`: joins the parts of a sweep.

use std::process::ExitCode;

use coalesce_bench::measure::record;
use coalesce_bench::sweep::merge::merge;

use super::files::{InputPath, OutputFile};
use super::input::source;
use super::output::{ensure_folder, notice_table, write_table};

/// Join the parts of a sweep that was run with --partition.
///
/// The result equals that of a single run. Fails if the parts belong to different sweeps, or if a cell is missing
/// or occurs twice.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce merge share-1.csv share-2.csv --out sweep.csv")]
pub struct Args {
    /// The tables of all parts; `-` for standard input.
    #[arg(required = true, value_name = "CSV")]
    parts: Vec<InputPath>,
    /// The joined table; `-` for standard output.
    #[arg(long, value_name = "CSV")]
    out: OutputFile,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure_folder(&args.out)?;
    let mut parts = Vec::new();
    for path in &args.parts {
        let part = source(path);
        parts.push((part.to_string(), record::read_file(part)?));
    }
    let rows = merge(&parts)?;
    write_table(&args.out, &rows)?;
    notice_table(&args.out, &rows);
    Ok(ExitCode::SUCCESS)
}
