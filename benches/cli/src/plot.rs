//! `coalesce plot`: the results of a sweep as pictures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use coalesce_bench::measure::record;
use coalesce_bench::report::gallery;
use coalesce_bench::sweep::plan::Plan;

/// Draw the results of a sweep, as SVG.
///
/// Efficiency at a glance; memory over time for the workloads for which most is held in vain; driver time
/// against capacity where there are several devices from the least on.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce plot benches/sweeps/least.toml results/latest/least.csv --out plots"
)]
pub struct Args {
    /// What was run.
    sweep: PathBuf,
    /// What came of it.
    results: PathBuf,
    /// The folder for the pictures.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(&args.sweep)?;
    let rows = record::read_file(&args.results)?;
    let of_plan = rows.iter().all(|row| row.sweep == plan.digest);
    ensure!(
        of_plan,
        "{} is not of the sweep {} as it is now",
        args.results.display(),
        args.sweep.display()
    );
    gallery::draw(&plan, &rows, &args.out)?;
    Ok(ExitCode::SUCCESS)
}
