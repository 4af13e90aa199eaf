//! `coalesce sweep`: many measurements, from one file into one table.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use anyhow::{bail, ensure};
use coalesce_bench::measure::record::{self, Row};
use coalesce_bench::measure::results;
use coalesce_bench::sweep::journal::Journal;
use coalesce_bench::sweep::plan::Plan;
use coalesce_bench::sweep::run::Runner;

use super::output::print;

/// Run workloads × policies × settings × capacities × seeds, and write a table of results.
///
/// Every cell that is done is kept in OUT.journal. If the sweep is interrupted, the same command goes on
/// where it was.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce sweep benches/sweeps/default.toml --out sweep.csv\n\nAs one of 4 jobs, and then together:\n  coalesce sweep S.toml --partition 1/4 --out share-1.csv\n  coalesce merge share-*.csv --out sweep.csv"
)]
pub struct Args {
    /// What to run: a TOML as described in benches/sweeps/README.md.
    sweep: PathBuf,
    /// The table of results, a CSV. One that is there is replaced when the sweep is complete.
    #[arg(long, value_name = "CSV")]
    out: PathBuf,
    /// Run only share i of n.
    #[arg(long, value_name = "i/n", default_value = "1/1")]
    partition: Partition,
    /// Only say which cells there are.
    #[arg(long)]
    list: bool,
}

/// One share of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Partition {
    part: u64,
    parts: u64,
}

impl FromStr for Partition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (part, parts) = text
            .split_once('/')
            .ok_or("write 1/4 for the first of four")?;
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| "both must be whole numbers")
        };
        let (part, parts) = (number(part)?, number(parts)?);
        if (1..=parts).contains(&part) {
            Ok(Self { part, parts })
        } else {
            Err("the first is 1/n, the last n/n")
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(&args.sweep)?;
    let Partition { part, parts } = args.partition;
    if args.list {
        let keys = plan.share(part, parts);
        let lines: String = keys.map(|(_, cell)| plan.key(cell) + "\n").collect();
        print(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let share = plan.share(part, parts).count();
    ensure!(
        share > 0,
        "share {part}/{parts} of {} cells is empty",
        plan.cells.len()
    );
    let out = args.out.display();
    ensure!(
        !args.out.is_dir(),
        "{out} is a folder; name a file for the table"
    );
    let (digest, build) = (&plan.digest, build());
    let heading = format!("# coalesce sweep {digest} share {part}/{parts} build {build}");
    let (mut journal, done) = Journal::open(&Journal::path_for(&args.out), &heading)?;
    let rows = complete(&plan, args.partition, &mut journal, done)?;
    save(args, &rows)?;
    journal.remove()?;
    eprintln!("{} rows in {}", rows.len(), args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// What tells this program from one that was built from other sources: rows of two allocators must not
/// end up in one table because the sweep was interrupted in between.
fn build() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let Ok(file) = file else {
        return "unknown".to_owned();
    };
    let modified = file.modified().unwrap_or(UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", file.len(), since.as_secs())
}

/// Runs what is not done; all rows of the share, in order.
fn complete(
    plan: &Plan,
    Partition { part, parts }: Partition,
    journal: &mut Journal,
    mut rows: Vec<Row>,
) -> anyhow::Result<Vec<Row>> {
    if !rows.is_empty() {
        eprintln!("{} cells were done before", rows.len());
    }
    let is_done = |number: u64| rows.iter().any(|row| row.cell == number);
    let left: Vec<_> = plan
        .share(part, parts)
        .filter(|(number, _)| !is_done(*number))
        .collect();
    let runner = Runner::new(plan, left.len() as u64);
    let failures = runner.run_all(left.into_iter(), |row| {
        journal.add(&row)?;
        rows.push(row);
        Ok(())
    })?;
    drop(runner);
    if !failures.is_empty() {
        let (count, all) = (failures.len(), failures.join("\n  "));
        bail!("{count} cells failed; the others are kept for the next run:\n  {all}");
    }
    rows.sort_by_key(|row| row.cell);
    Ok(rows)
}

fn save(args: &Args, rows: &[Row]) -> anyhow::Result<()> {
    let mut csv = Vec::new();
    record::write(rows, &mut csv)?;
    results::write(&args.out, &csv)
}
