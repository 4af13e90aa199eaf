//! `coalesce report`: tables of results.

use std::path::Path;
use std::process::ExitCode;

use coalesce_alloc::printable::printable;
use coalesce_bench::measure::record;
use coalesce_bench::measure::record::Row;
use coalesce_bench::measure::results;
use coalesce_bench::report::readme::{self, Splice, TABLES};
use coalesce_bench::report::table;
use coalesce_bench::report::waste::measured::{self, Measured};

use super::files::{InputPath, OutputFile};
use super::input::source;
use super::markdown::Markdown;
use super::output::{print, print_json};

/// Print a table of results, or update the tables in a Markdown file.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce report\n  coalesce report results/latest/default.csv\n  coalesce report --splice README.md"
)]
pub struct Args {
    /// A table of results, or `-` for standard input, or a folder with default.csv and other tables [default: the
    /// newest folder in results/ of the checkout around the current folder].
    results: Option<InputPath>,
    /// Markdown file to put the tables into (`-`: from standard input to standard output), between the marks
    /// `<!-- table NAME: -->` and `<!-- end -->`.
    #[arg(long, value_name = "MARKDOWN", conflicts_with = "json")]
    splice: Option<OutputFile>,
    /// Print the rows as a JSON array, which `coalesce schema report` describes.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.results.as_deref().map(Path::to_owned);
    let path = path.map_or_else(results::newest, Ok)?;
    match &args.splice {
        Some(target) => splice(&path, target)?,
        None => {
            let csv = if path.is_dir() {
                path.join("default.csv")
            } else {
                path
            };
            let rows = record::read_file(source(csv))?;
            if args.json {
                print_json(&objects(&rows)?)?;
            } else {
                print(&table::text(&rows))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows as JSON objects. Rows of unsupported workloads lack the figures that could not be measured.
fn objects(rows: &[Row]) -> anyhow::Result<Vec<serde_json::Value>> {
    let object = |row: &Row| {
        let mut object = serde_json::to_value(row)?;
        if let (false, Some(fields)) = (row.is_measured(), object.as_object_mut()) {
            fields.retain(|column, _| record::is_stated(column));
        }
        Ok(object)
    };
    rows.iter().map(object).collect()
}

/// Updates the tables in `target` from the results in `folder`.
fn splice(folder: &Path, target: &Path) -> anyhow::Result<()> {
    let mut markdown = Markdown::read(target, &TABLES.map(|(name, ..)| name))?;
    let record = folder.file_name().unwrap_or_default().to_string_lossy();
    // The mark is a comment, which must not end in the name.
    let record = printable(record.replace(['<', '>'], "_")).to_string();
    let measured = Measured::read_file(&folder.join(measured::FILE))?;
    for (name, file, make) in TABLES {
        if markdown.has_place(name) {
            let rows = record::read_file(folder.join(file))?;
            markdown.splice(&Splice {
                name,
                made_by: readme::made_by(&record, file),
                markdown: make(&rows, &measured),
            })?;
        }
    }
    markdown.splice_figures(folder)?;
    markdown.write()
}
