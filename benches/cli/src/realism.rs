//! `coalesce realism`: how close generated workloads are to recorded ones.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use coalesce_bench::measure::results;
use coalesce_bench::realism;
use coalesce_bench::report::readme::{self, Splice};
use coalesce_workloads::formats::source::Source;
use schemars::JsonSchema;
use serde::Serialize;

use super::input::source;
use super::output::{self, print, print_json};

/// Compare generated workloads with the recorded ones that they imitate.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce realism\n  coalesce realism --splice results/REALISM.md"
)]
pub struct Args {
    /// Folder of the recorded traces; by default workloads/traces of the checkout around the current folder.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// Markdown file to put the table into (`-`: from standard input to standard output), between the marks
    /// `<!-- table realism: -->` and `<!-- end -->`.
    #[arg(long, value_name = "MARKDOWN")]
    splice: Option<PathBuf>,
    /// Print a JSON array, which `coalesce schema realism` describes.
    #[arg(long)]
    json: bool,
}

/// A generated workload and the recorded one that it imitates.
#[derive(JsonSchema, Serialize)]
pub struct Realism {
    /// The recorded trace.
    trace: &'static str,
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
            trace: pair.name,
            peak_requested,
            events,
            efficiency_default,
            efficiency_expandable,
            close: pair.is_close(),
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Before the measurement, which takes a while.
    let target = args.splice.as_deref().map(Target::read).transpose()?;
    let pairs = realism::measure(&results::traces(args.traces.as_deref())?)?;
    let markdown = realism::markdown(&pairs);
    if args.json {
        print_json(&pairs.iter().map(Realism::of).collect::<Vec<_>>())?;
    } else if target.is_none() {
        print(&markdown)?;
    }
    if let Some(target) = target {
        target.splice(markdown)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A Markdown file with a place for the table.
struct Target<'a> {
    path: &'a Path,
    shown: Source,
    text: String,
}

impl<'a> Target<'a> {
    const TABLE: &'static str = "realism";

    fn read(path: &'a Path) -> anyhow::Result<Self> {
        let shown = source(path);
        let text = shown.read_to_string();
        let text = text.with_context(|| format!("cannot read {shown}"))?;
        ensure!(
            readme::has_place(&text, Self::TABLE),
            "{shown}: no mark '<!-- table realism: -->'"
        );
        Ok(Self { path, shown, text })
    }

    fn splice(&self, markdown: String) -> anyhow::Result<()> {
        let table = Splice {
            name: Self::TABLE,
            made_by: "`coalesce realism --splice`".to_owned(),
            markdown,
        };
        let spliced = readme::splice(&self.text, &table);
        let spliced = spliced.with_context(|| self.shown.to_string())?;
        output::write(self.path, spliced.as_bytes())
    }
}
