//! `coalesce report`: the results that `cargo bench` left, as tables.

use std::fs::{self, File};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use benches::{readme, record, results, table};

/// Show the results of the last `cargo bench`, or put them into a README.
#[derive(clap::Args)]
pub struct Args {
    /// The CSV that `cargo bench` wrote [default: peak_memory.csv in the folder of results].
    #[arg(long, value_name = "CSV")]
    results: Option<PathBuf>,
    /// Put the table of efficiencies between the marks in this file instead.
    #[arg(long, value_name = "README")]
    splice: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = match &args.results {
        Some(path) => path.clone(),
        None => results::folder().join("peak_memory.csv"),
    };
    let file = File::open(&path)
        .with_context(|| format!("cannot read {}; `cargo bench` makes it", path.display()))?;
    let rows = record::read(file).with_context(|| path.display().to_string())?;
    match &args.splice {
        Some(target) => {
            let text = fs::read_to_string(target)
                .with_context(|| format!("cannot read {}", target.display()))?;
            let spliced = readme::splice(&text, &readme::markdown(&rows))
                .with_context(|| target.display().to_string())?;
            results::write(target, spliced.as_bytes())?;
        }
        None => stdout()
            .write_all(table::text(&rows).as_bytes())
            .context("cannot write to standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}
