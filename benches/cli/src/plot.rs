//! `coalesce plot`: plots of the results of a sweep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use coalesce_alloc::printable;
use coalesce_bench::measure::record;
use coalesce_bench::report::gallery::{self, Kind};
use coalesce_bench::sweep::plan::Plan;

use super::files::{InputPath, OutputFolder};
use super::input::source;
use super::output::{folder, notice};

/// Draw the results of a sweep as SVG files.
///
/// Draws the efficiency of all workloads under all settings and, if the sweep is named too, the memory over time of the
/// workloads with the most unused reserved memory, which are replayed. Results of several policies also get plots of
/// driver time against reserved memory; of several tight devices, of driver time against capacity; of several releases
/// of PyTorch, of the change of reserved memory from release to release; and of the policy quilt, of the memory that
/// each policy wastes on the recorded programs.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce plot my.csv\n  coalesce plot my.toml my.csv --out plots",
    allow_missing_positional = true
)]
pub struct Args {
    /// The sweep: its TOML file; `-` for standard input. Without it, no timelines are drawn.
    sweep: Option<InputPath>,
    /// The table of its results; `-` for standard input.
    results: InputPath,
    /// Output folder [default: beside the table, my for my.csv].
    #[arg(long, value_name = "FOLDER", value_parser = folder())]
    out: Option<OutputFolder>,
    /// Draw only plots of these kinds [default: all that the results have figures for].
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    only: Vec<Kind>,
}

/// A kind of plot by its name.
fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name))
        .try_map(|name| Kind::named(&name).ok_or("no such kind"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let kinds = match args.only.as_slice() {
        [] => &Kind::ALL,
        only => only,
    };
    let mut remark = String::new();
    if args.sweep.is_none() && kinds.contains(&Kind::Timeline) {
        let table = printable::path(&args.results);
        let need = format!("timelines need the sweep: coalesce plot SWEEP.toml {table}");
        ensure!(args.only.is_empty(), need);
        remark = format!("; {need}");
    }
    let results = source(&args.results);
    let rows = record::read_file(results.clone())?;
    let out = args
        .out
        .as_deref()
        .map(Path::to_owned)
        .or_else(|| beside(&args.results));
    let out =
        out.with_context(|| format!("{results}: name a folder for the plots: --out FOLDER"))?;
    let plan = match &args.sweep {
        None => None,
        Some(sweep) => {
            let sweep = source(sweep);
            let plan = Plan::load(sweep.clone())?;
            ensure!(
                rows.iter().all(|row| row.sweep == plan.digest),
                "{results} was not produced by the sweep {sweep} as it is"
            );
            Some(plan)
        }
    };
    let count = gallery::draw(plan.as_ref(), &rows, &out, kinds)?;
    notice(&format!(
        "{count} plots in {}{remark}",
        printable::path(&out)
    ));
    Ok(ExitCode::SUCCESS)
}

/// The folder beside a table with its name; none for what is not called `NAME.csv`.
fn beside(table: &Path) -> Option<PathBuf> {
    let is_csv = table.extension().is_some_and(|it| it == "csv");
    is_csv.then(|| table.with_extension(""))
}
