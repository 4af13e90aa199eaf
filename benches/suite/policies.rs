//! `cargo bench`: every policy on programs of each kind, who needs how much memory, and how fast it is.
//!
//! Runs the sweep `sweeps/bench.toml` on the simulated device, times a malloc and its free under each of its policies on the
//! workloads [`TIMED`], prints a table, and writes `bench.csv`, a spreadsheet and a plot into the results folder. All but
//! the times is identical on every machine. `COALESCE_SWEEP` names another sweep. With a GPU it measures the policies on that
//! too. A filter or an option is meant for criterion: then only times are measured, and the files stay as they are.

mod gpu;
mod pairs;

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use coalesce_alloc::printable;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::record::{self, Row};
use coalesce_bench::measure::results;
use coalesce_bench::report::pareto::is_offline;
use coalesce_bench::report::plot::tradeoff::{PAIR_TIME, tradeoff};
use coalesce_bench::report::ranking::Ranking;
use coalesce_bench::report::spreadsheet;
use coalesce_bench::report::summary::summarize;
use coalesce_bench::sweep::plan::{Plan, PlannedCell};
use coalesce_bench::sweep::run::Runner;
use coalesce_bench::timing::throughput;
use coalesce_bench::timing::walk::Walk;

use pairs::{Effort, Pairs};

/// A workload of each kind: transformer-shaped, fragmentation, gradient accumulation, recorded.
const TIMED: [&str; 4] = [
    "transformer_recomputed",
    "fragmentation_large",
    "grad_accumulation",
    "gpt2_small_amp_foreach",
];

const EFFORT: Effort = Effort {
    warm_up: Duration::from_millis(50),
    measurement: Duration::from_millis(400),
    pairs: 10_000,
};

/// Nanoseconds for a malloc and its free in each sample, by workload, policy and setting.
type Times = BTreeMap<[String; 3], Vec<f64>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::load(&results::sweep("bench")?)?;
    if arguments != ["--bench"] {
        let mut pairs = Pairs::new(EFFORT);
        time(&plan, &mut pairs)?;
        return pairs.check(arguments.into_iter());
    }
    let folder = results::folder()?;
    // Before a minute is spent.
    results::ensure_writable(&folder.join("bench.csv"))?;
    let (ways, programs) = (ways(&plan), plan.workloads.len());
    writeln!(
        stdout(),
        "Measuring {ways} allocators on {programs} programs: peak reserved memory, then the time of malloc and free. This \
         takes about a minute."
    )?;
    let mut rows = memory(&plan)?;
    let mut pairs = Pairs::new(EFFORT);
    let times = time(&plan, &mut pairs)?;
    for row in &mut rows {
        let key = [&row.workload, &row.policy, &row.setting].map(String::clone);
        if let Some(samples) = times.get(&key) {
            *row = throughput::with(std::mem::take(row), samples);
        }
    }
    let ranking = Ranking::of(&rows);
    write(&rows, &ranking, &folder)?;
    let on_gpu = gpu::run(&folder);
    writeln!(stdout(), "\n{}", ranking.text())?;
    on_gpu?;
    writeln!(
        stdout(),
        "\nThe table, a spreadsheet and a plot: {}/bench.{{csv,xlsx,svg}}\n\
         Next: `cargo bench -- quilt` times one policy again and compares it with this run; `cargo bench --bench settings` \
         measures PyTorch's settings.",
        printable::path(&folder)
    )?;
    Ok(())
}

/// Number of policies with their settings.
fn ways(plan: &Plan) -> usize {
    let mut ways: Vec<_> = plan
        .cells
        .iter()
        .map(|cell| (&cell.policy, &cell.setting))
        .collect();
    ways.sort();
    ways.dedup();
    ways.len()
}

/// Runs the sweep.
fn memory(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let runner = Runner::new(plan, plan.cells.len() as u64, Jobs::default());
    let failures = runner.run_all(plan.share(1, 1), |row| {
        rows.push(row);
        Ok(())
    })?;
    ensure!(failures.is_empty(), "failed cells: {}", failures.join("; "));
    rows.sort_by_key(|row| row.cell);
    Ok(rows)
}

/// Times the policies of the sweep, on roomy devices. A plan is for one run, not for repeated ones, so offline policies are
/// left out.
fn time(plan: &Plan, pairs: &mut Pairs) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for (number, entry) in plan.workloads.iter().enumerate() {
        let workload = entry.workload.name();
        if !TIMED.contains(&workload) {
            continue;
        }
        let walk = Walk::prepare(entry.workload.as_ref())?;
        for cell in plan.cells.iter().filter(|cell| cell.workload == number) {
            if !is_offline(&cell.policy) {
                let mut allocator = plan.cell(cell, None)?.allocator()?;
                let name = name(cell);
                let samples =
                    pairs.time((workload, &name), &walk, allocator.as_mut(), |_| Ok(()))?;
                let key = [workload, &cell.policy, &cell.setting].map(str::to_owned);
                times.insert(key, samples);
            }
        }
    }
    Ok(times)
}

fn name(cell: &PlannedCell) -> String {
    match cell.setting.as_str() {
        "default" => cell.policy.clone(),
        setting => format!("{}/{setting}", cell.policy),
    }
}

fn write(rows: &[Row], ranking: &Ranking, folder: &Path) -> anyhow::Result<()> {
    let mut csv = Vec::new();
    record::write(rows, &mut csv)?;
    results::write(&folder.join("bench.csv"), &csv)?;
    let summary = summarize(rows, Some("pytorch/default"), Vec::new())?;
    results::write(
        &folder.join("bench.xlsx"),
        &spreadsheet::xlsx(rows, &summary)?,
    )?;
    let title = "Memory and time of each policy";
    let svg = tradeoff(title, &PAIR_TIME, &ranking.points())?;
    results::write(&folder.join("bench.svg"), svg.as_bytes())
}
