//! `coalesce realism`: how close generated workloads are to recorded ones.

use std::process::ExitCode;

use coalesce_bench::measure::results;
use coalesce_bench::realism;
use coalesce_bench::report::readme::Splice;
use schemars::JsonSchema;
use serde::Serialize;

use super::files::{InputPath, OutputFile};
use super::markdown::Markdown;
use super::output::{ensure_apart, is_stdout, print, print_json};

/// Compare generated workloads with the recorded ones that they imitate.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce realism\n  coalesce realism --splice results/REALISM.md"
)]
pub struct Args {
    /// Folder of the recorded traces; by default workloads/traces of the checkout around the current folder.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<InputPath>,
    /// Markdown file to put the table into (`-`: from standard input to standard output), between the marks
    /// `<!-- table realism: -->` and `<!-- end -->`.
    #[arg(long, value_name = "MARKDOWN")]
    splice: Option<OutputFile>,
    /// Print a JSON array, which `coalesce schema realism` describes.
    #[arg(long)]
    json: bool,
}

/// A generated workload and the recorded one that it imitates.
#[derive(JsonSchema, Serialize)]
pub struct Realism {
    /// The recorded trace.
    trace: String,
    /// Relative difference of the peak requested: generated minus recorded.
    peak_requested: f64,
    /// Relative difference of the number of events.
    events: f64,
    /// Difference of the efficiency under default settings, from 0 to 1.
    efficiency_default: f64,
    /// The same with expandable segments.
    efficiency_expandable: f64,
    /// Whether all differences are within their limits.
    close: bool,
}

impl Realism {
    fn of(pair: &realism::Pair) -> Self {
        let [
            peak_requested,
            events,
            efficiency_default,
            efficiency_expandable,
        ] = pair.differences();
        Self {
            trace: pair.name.clone(),
            peak_requested,
            events,
            efficiency_default,
            efficiency_expandable,
            close: pair.is_close(),
        }
    }
}

/// The name of the table in Markdown files.
const TABLE: &str = "realism";

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let splice = args.splice.as_deref();
    ensure_apart(
        ("--json", args.json),
        ("--splice -", splice.is_some_and(is_stdout)),
    )?;
    // Before the measurement, which takes a while.
    let page = splice.map(|path| Markdown::read(path, &[TABLE]));
    let target = page.transpose()?;
    let pairs = realism::measure(&results::traces(args.traces.as_deref())?)?;
    let markdown = realism::markdown(&pairs);
    if args.json {
        print_json(&pairs.iter().map(Realism::of).collect::<Vec<_>>())?;
    } else if target.is_none() {
        print(&markdown)?;
    }
    if let Some(mut target) = target {
        target.splice(&Splice {
            name: TABLE,
            made_by: "`coalesce realism --splice`".to_owned(),
            markdown,
        })?;
        target.write()?;
    }
    Ok(ExitCode::SUCCESS)
}
