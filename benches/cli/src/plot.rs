//! `coalesce plot`: plots of the results of a sweep.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use coalesce_bench::measure::record;
use coalesce_bench::report::gallery::{self, Kind};
use coalesce_bench::sweep::plan::Plan;

use super::input::source;
use super::output::folder;

/// Draw the results of a sweep as SVG files.
///
/// Draws the efficiency of all workloads under all settings, and the memory over time of the workloads with the most
/// unused reserved memory. Results of several policies also get plots of driver time against reserved memory; of several
/// tight devices, of driver time against capacity; of several releases of PyTorch, of the change of reserved memory from
/// release to release; and of the policy quilt, of the memory that each policy wastes on the recorded programs.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce plot benches/sweeps/least.toml results/latest/least.csv --out plots"
)]
pub struct Args {
    /// The sweep: its TOML file; `-` for standard input.
    sweep: PathBuf,
    /// The table of its results; `-` for standard input.
    results: PathBuf,
    /// Output folder.
    #[arg(long, value_name = "FOLDER", value_parser = folder())]
    out: PathBuf,
    /// Draw only plots of these kinds [default: all that the results have figures for].
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    only: Vec<Kind>,
}

/// A kind of plot by its name.
fn kinds() -> impl TypedValueParser<Value = Kind> {
    let named = |name: String| Kind::ALL.into_iter().find(|kind| kind.name() == name);
    PossibleValuesParser::new(Kind::ALL.map(Kind::name))
        .try_map(move |name| named(name).ok_or("no such kind"))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (sweep, results) = (source(&args.sweep), source(&args.results));
    let plan = Plan::load(sweep.clone())?;
    let rows = record::read_file(results.clone())?;
    let of_plan = rows.iter().all(|row| row.sweep == plan.digest);
    ensure!(
        of_plan,
        "{results} was not produced by the sweep {sweep} as it is"
    );
    let kinds = match args.only.as_slice() {
        [] => &Kind::ALL,
        only => only,
    };
    gallery::draw(&plan, &rows, &args.out, kinds)?;
    Ok(ExitCode::SUCCESS)
}
