//! `cargo bench --bench settings`: the peak memory of every workload under PyTorch's settings.
//!
//! Runs the sweep `sweeps/default.toml`, prints a table, and writes `default.csv` and plots into the results folder. The
//! files are identical on every machine. `COALESCE_SWEEP` names another sweep.

use std::io::{Write, stdout};

use anyhow::ensure;
use coalesce_alloc::printable;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::record::{self, Row};
use coalesce_bench::measure::results;
use coalesce_bench::report::gallery::{self, Kind};
use coalesce_bench::report::table;
use coalesce_bench::sweep::plan::Plan;
use coalesce_bench::sweep::run::Runner;

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` starts it without `--bench`.
    if std::env::args().any(|argument| argument == "--bench") {
        return run();
    }
    Ok(())
}

/// Runs the sweep. A failing cell does not prevent the results of the others.
fn run() -> anyhow::Result<()> {
    let plan = Plan::load(&results::sweep("default")?)?;
    let mut rows: Vec<Row> = Vec::new();
    let runner = Runner::new(&plan, plan.cells.len() as u64, Jobs::default());
    let failures = runner.run_all(plan.share(1, 1), |row| {
        rows.push(row);
        Ok(())
    })?;
    drop(runner);
    rows.sort_by_key(|row| row.cell);
    // Print first, so that results are visible if saving fails; save even if printing fails.
    let shown = stdout().write_all(table::text(&rows).as_bytes());
    let folder = results::folder()?;
    let mut csv = Vec::new();
    record::write(&rows, &mut csv)?;
    results::write(&folder.join("default.csv"), &csv)?;
    gallery::draw(&plan, &rows, &folder, &Kind::ALL)?;
    shown?;
    let count = rows.len();
    writeln!(
        stdout(),
        "\n{count} rows and plots in {}",
        printable::path(&folder)
    )?;
    ensure!(failures.is_empty(), "failed cells: {}", failures.join("; "));
    Ok(())
}
