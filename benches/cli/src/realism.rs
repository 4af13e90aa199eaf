//! `coalesce realism`: how close generated workloads are to recorded ones.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use coalesce_bench::measure::results;
use coalesce_bench::realism;
use coalesce_bench::report::readme::{self, Splice};

use super::output::print;

/// Compare generated workloads with the recorded ones that they imitate.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce realism\n  coalesce realism --splice results/REALISM.md"
)]
pub struct Args {
    /// Folder of the recorded traces; by default workloads/traces of the checkout around the current folder.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// Markdown file to put the table into, between the marks `<!-- table realism: -->` and `<!-- end -->`.
    #[arg(long, value_name = "MARKDOWN")]
    splice: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let markdown = realism::markdown(&realism::measure(&results::traces(
        args.traces.as_deref(),
    )?)?);
    let Some(target) = &args.splice else {
        print(&markdown)?;
        return Ok(ExitCode::SUCCESS);
    };
    let shown = target.display();
    let text = fs::read_to_string(target).with_context(|| format!("cannot read {shown}"))?;
    let table = Splice {
        name: "realism",
        made_by: "`coalesce realism --splice`".to_owned(),
        markdown,
    };
    ensure!(
        readme::has_place(&text, table.name),
        "{shown}: no mark '<!-- table realism: -->'"
    );
    let spliced = readme::splice(&text, &table).with_context(|| shown.to_string())?;
    results::write(target, spliced.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
