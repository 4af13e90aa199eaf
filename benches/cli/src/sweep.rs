//! `coalesce sweep`: measurements described by a file.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{bail, ensure};
use coalesce_alloc::printable::{self, printable};
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::measure::record::Row;
use coalesce_bench::sweep::SOURCES;
use coalesce_bench::sweep::journal::Journal;
use coalesce_bench::sweep::plan::Plan;
use coalesce_bench::sweep::run::Runner;

use super::files::{InputPath, OutputFile, check_read};
use super::input::source;
use super::output::{failed, is_stdout, notice, notice_below, notice_table, print, write_table};

/// Measure combinations of workloads, policies, settings, capacities and seeds.
///
/// Records completed cells in OUT.journal. After an interruption, the same command resumes where it stopped. With
/// `--out -`, or if OUT is a pipe or a device, there is no journal, and an interruption loses the results.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce sweep benches/sweeps/default.toml --out sweep.csv\n\nIn 4 parts, and merged:\n  coalesce sweep S.toml --partition 1/4 --out part-1.csv\n  coalesce merge part-*.csv --out sweep.csv"
)]
pub struct Args {
    /// Sweep description: a TOML file, see benches/sweeps/README.md; `-` for standard input.
    sweep: InputPath,
    /// Output table; `-` for standard output. An existing file is replaced when the sweep is complete.
    #[arg(long, value_name = "CSV", required_unless_present = "list")]
    out: Option<OutputFile>,
    /// Run only part i of n.
    #[arg(long, value_name = "i/n", default_value = "1/1")]
    partition: Partition,
    /// List the cells without running them.
    #[arg(long)]
    list: bool,
    /// Number of threads that run cells at a time [default: the number of cores].
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// One part of several.
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
            .ok_or("expected i/n, such as 1/4 for the first of four")?;
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| "i and n must be whole numbers")
        };
        let (part, parts) = (number(part)?, number(parts)?);
        if (1..=parts).contains(&part) {
            Ok(Self { part, parts })
        } else {
            Err("i must be from 1 to n: the first part is 1/n, the last n/n")
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = Plan::load(source(&args.sweep))?;
    let Partition { part, parts } = args.partition;
    let Some(out) = args.out.as_ref().filter(|_| !args.list) else {
        let keys = plan.share(part, parts);
        let lines: String = keys
            .map(|(_, cell)| format!("{}\n", printable(plan.key(cell))))
            .collect();
        print(&lines)?;
        return Ok(ExitCode::SUCCESS);
    };
    let traces = plan.workloads.iter();
    if let Err(error) = check_read(out, traces.filter_map(|entry| entry.trace.as_deref())) {
        return Ok(failed(&error.context("--out"), 2));
    }
    let share = plan.share(part, parts).count();
    ensure!(
        share > 0,
        "part {part}/{parts} of {} cells is empty",
        plan.cells.len()
    );
    ensure!(
        !out.is_dir(),
        "{} is a folder; --out expects a file",
        printable::path(out)
    );
    // Nothing is created beside a pipe or a device.
    if is_stdout(out) || out.metadata().is_ok_and(|there| !there.is_file()) {
        let rows = complete(&plan, args, None, Vec::new())?;
        write_table(out, &rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (digest, sources) = (&plan.digest, SOURCES);
    let heading = format!("# coalesce sweep {digest} share {part}/{parts} sources {sources}");
    let path = Journal::path_for(out);
    let (mut journal, kept) = Journal::open(&path, &heading)?;
    for line in kept.damaged {
        let path = printable::path(&path);
        notice(&format!(
            "{path}: line {line} is damaged; its cell is measured again"
        ));
    }
    ctrlc::set_handler(move || {
        let path = printable::path(&path);
        notice_below(&format!(
            "interrupted; {path} keeps the completed cells: the same command resumes"
        ));
        std::process::exit(INTERRUPTED);
    })?;
    let rows = complete(&plan, args, Some(&mut journal), kept.rows)?;
    write_table(out, &rows)?;
    journal.remove()?;
    notice_table(out, &rows);
    Ok(ExitCode::SUCCESS)
}

/// The exit status of a program that SIGINT ends.
const INTERRUPTED: i32 = 130;

/// Runs the cells that are not done. Returns all rows of the part, in order.
fn complete(
    plan: &Plan,
    args: &Args,
    mut journal: Option<&mut Journal>,
    mut rows: Vec<Row>,
) -> anyhow::Result<Vec<Row>> {
    if !rows.is_empty() {
        notice(&format!("{} cells are already done", rows.len()));
    }
    let Partition { part, parts } = args.partition;
    let is_done = |number: u64| rows.iter().any(|row| row.cell == number);
    let left: Vec<_> = plan
        .share(part, parts)
        .filter(|(number, _)| !is_done(*number))
        .collect();
    let runner = Runner::new(plan, left.len() as u64, Jobs::of(args.jobs));
    let failures = runner.run_all(left.into_iter(), |row| {
        if let Some(journal) = &mut journal {
            journal.add(&row)?;
        }
        rows.push(row);
        Ok(())
    })?;
    drop(runner);
    if !failures.is_empty() {
        let (count, all) = (failures.len(), failures.join("\n  "));
        let kept = match journal {
            Some(_) => "the completed cells are kept for the next run",
            None => "nothing is printed",
        };
        bail!("{count} cells failed; {kept}:\n  {all}");
    }
    rows.sort_by_key(|row| row.cell);
    Ok(rows)
}
