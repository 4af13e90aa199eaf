//! Runs cells, several at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::anyhow;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::Release;

use super::plan::{Plan, PlannedCell};
use crate::measure::capacity::{Capacity, share};
use crate::measure::cell::{Cell, unsupported_feature};
use crate::measure::least::{Least, least};
use crate::measure::parallel::Jobs;
use crate::measure::plausible::check_demand;
use crate::measure::progress::Progress;
use crate::measure::record::Row;
use crate::timing::throughput;

/// Runs cells of a plan and shows progress.
pub struct Runner<'a> {
    plan: &'a Plan,
    /// Minimum device memory that is known or being searched.
    least: Mutex<HashMap<Search, Found>>,
    progress: Progress,
    /// The number of threads.
    threads: usize,
}

/// The key of a search for minimum device memory: workload, policy, release, settings, address policy.
type Search = (usize, String, Release, String, &'static str);
type Found = Arc<OnceLock<Result<Least, Failure>>>;

/// The reason why a cell has no figures.
#[derive(Clone, Debug)]
struct Failure {
    /// The feature that the policy does not support, if that is the reason.
    unsupported: Option<&'static str>,
    reason: String,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self {
            unsupported: unsupported_feature(&error),
            reason: format!("{error:#}"),
        }
    }
}

impl<'a> Runner<'a> {
    /// A runner for `cells` cells, which runs `jobs` of them at a time.
    #[must_use]
    pub fn new(plan: &'a Plan, cells: u64, jobs: Jobs) -> Self {
        Self {
            plan,
            least: Mutex::default(),
            progress: Progress::new("cells", Some(cells)),
            threads: jobs.threads(usize::try_from(cells).unwrap_or(usize::MAX)),
        }
    }

    /// Runs cells, in any order. Passes each row to `done`, one at a time; an error of `done` ends the work,
    /// a failing cell does not. Returns a message for each failed cell.
    ///
    /// # Errors
    /// The first error of `done`.
    pub fn run_all<'c>(
        &self,
        cells: impl Iterator<Item = (u64, &'c PlannedCell)> + Send,
        done: impl FnMut(Row) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Vec<String>> {
        let queue = Mutex::new(cells);
        let sink = Mutex::new((done, Ok(Vec::new())));
        let next = || lock(&queue).next();
        let work = || {
            while let Some((number, cell)) = next() {
                let measured = self.run(number, cell);
                let (done, outcome) = &mut *lock(&sink);
                let Ok(failures) = outcome else { return };
                match measured {
                    Ok(row) => {
                        if let Err(error) = done(row) {
                            *outcome = Err(error);
                        }
                    }
                    Err(error) => {
                        failures.push(format!("{}: {error:#}", printable(self.plan.key(cell))))
                    }
                }
                self.progress
                    .add(1, self.plan.workloads[cell.workload].workload.name());
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        let (_, outcome) = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut failures = outcome?;
        failures.sort();
        Ok(failures)
    }

    /// Runs one cell.
    fn run(&self, number: u64, planned: &PlannedCell) -> anyhow::Result<Row> {
        let entry = &self.plan.workloads[planned.workload];
        let offline = self.plan.offline(planned)?;
        let cell = self.plan.cell(planned, offline.as_ref())?;
        let row = match self.measure(planned, &cell) {
            Ok(row) => row,
            Err(Failure {
                unsupported: Some(feature),
                ..
            }) => cell.unsupported(feature),
            Err(Failure { reason, .. }) => return Err(anyhow!(reason)),
        };
        Ok(Row {
            seed: entry.seed,
            family: entry.family.clone(),
            capacity: planned.capacity.to_string(),
            sweep: self.plan.digest.clone(),
            cell: number,
            cells: self.plan.cells.len() as u64,
            ..row
        })
    }

    fn measure(&self, planned: &PlannedCell, cell: &Cell<'_>) -> Result<Row, Failure> {
        if planned.capacity.is_tight() {
            check_demand(cell.workload, &cell.demand)?;
        }
        let (capacity, fails_above) = match planned.capacity {
            Capacity::Bytes(bytes) => (bytes, None),
            Capacity::OfDemand(percent) => (share(cell.demand.lower_bound_bytes, percent), None),
            Capacity::Least { more } => {
                let least = self.least(planned, cell)?;
                (share(least.bytes, 100 + more), least.fails_above)
            }
        };
        let cell = cell.on(capacity);
        let row = cell.measure(&mut ())?;
        let row = throughput::time(&cell, row, planned.timing)?;
        Ok(Row {
            fails_above_bytes: fails_above,
            ..row
        })
    }

    /// The minimum device memory, searched once for all cells that need it.
    fn least(&self, planned: &PlannedCell, cell: &Cell<'_>) -> Result<Least, Failure> {
        let (policy, conf) = (planned.policy.clone(), planned.conf.clone());
        let addresses = planned.addresses.name();
        let search = (planned.workload, policy, planned.release, conf, addresses);
        let found = Arc::clone(lock(&self.least).entry(search).or_default());
        let find = || least(cell).map_err(Failure::from);
        found.get_or_init(find).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;

    use anyhow::bail;

    use super::*;
    use crate::measure::record::write;

    const SWEEP: &str = r#"
        [settings]
        default = ""
        expand = "expandable_segments:True"
        [[workload]]
        presets = ["fragmentation_article"]
        [[workload]]
        traces = "../workloads/traces/example_interleaved_free.csv.gz"
        [[workload]]
        family = "fragmentation"
        name = "small"
        with = { blocks = 50, rounds = 2 }
        [[run]]
        seeds = [7, 8]
        capacities = ["1TiB", "110%", "least", "least+10%"]
        torch = ["2.6", "2.11"]
        [[run]]
        settings = ["default"]
        policies = ["pytorch", "bfc", "offline"]
        addresses = ["up", "firstfit"]
        families = ["recorded"]
        capacities = ["60MiB", "least"]
    "#;

    fn plan(text: &str) -> Plan {
        Plan::parse(text, Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// All rows of a sweep, and the cells that failed.
    fn swept(plan: &Plan, jobs: Jobs) -> (Vec<Row>, Vec<String>) {
        let runner = Runner::new(plan, plan.cells.len() as u64, jobs);
        let mut rows = Vec::new();
        let done = |row| {
            rows.push(row);
            Ok(())
        };
        let failures = runner.run_all((0..).zip(&plan.cells), done).unwrap();
        rows.sort_by_key(|row| row.cell);
        (rows, failures)
    }

    #[test]
    fn the_results_of_a_sweep_are_as_recorded() {
        let plan = plan(SWEEP);
        let (mut rows, failures) = swept(&plan, Jobs::of(NonZeroUsize::new(3)));
        assert_eq!(failures, Vec::<String>::new());
        assert!(rows.iter().all(|row| row.sweep == plan.digest));
        // It contains the version of the program.
        rows.iter_mut().for_each(|row| row.sweep.clear());
        let mut text = Vec::new();
        write(&rows, &mut text).unwrap();
        let keys: Vec<String> = plan.cells.iter().map(|cell| plan.key(cell)).collect();
        insta::assert_snapshot!("rows", String::from_utf8(text).unwrap());
        insta::assert_snapshot!("keys", keys.join("\n"));
        for (part, of_part) in [(1, [0, 3]), (2, [1, 4]), (3, [2, 5])] {
            let numbers: Vec<u64> = plan.share(part, 3).map(|(number, _)| number).collect();
            assert_eq!(numbers[..2], of_part);
            assert!(numbers.iter().all(|number| number % 3 == part - 1));
        }
    }

    #[test]
    fn what_changes_results_changes_the_digest() {
        let digest = |old: &str, new: &str| plan(&SWEEP.replace(old, new)).digest;
        let whole = digest("", "");
        assert_eq!(whole.len(), 16);
        for (old, new) in [
            ("expandable_segments:True", "max_split_size_mb:64"),
            ("name = \"small\"", "name = \"other\""),
            ("rounds = 2", "rounds = 3"),
            ("seeds = [7, 8]", "seeds = [7, 9]"),
            ("60MiB", "61MiB"),
            ("families = [\"recorded\"]", "timing = 3"),
            ("[settings]", "profile = \"h100\"\n[settings]"),
        ] {
            assert_ne!(digest(old, new), whole, "{new}");
        }
        assert_eq!(digest("[[run]]", "# A remark.\n[[run]]"), whole);
    }

    #[test]
    fn failing_cells_are_named_and_do_not_end_a_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let trace = "op,id,bytes,stream,tag\nalloc,1,184467440731615,0,a\n";
        std::fs::write(folder.path().join("large.csv"), trace).unwrap();
        let text = "[settings]\ndefault = \"\"\n[[workload]]\ntraces = \"large.csv\"\n\
                    [[run]]\ncapacities = [\"least\", \"1TiB\", \"110%\"]\n";
        let plan = Plan::parse(text, folder.path()).unwrap();
        let (rows, failures) = swept(&plan, Jobs::ONE);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.cell, row.cells, row.ooms))
            .collect();
        assert_eq!(rows, [(1, 3, 1)]);
        let failed = |capacity: &str| {
            format!(
                "large, pytorch, default, {capacity}, up, {}: large: live requests reach 167.77 TiB, more than the \
                 16.00 TiB that any device may have; event 0 is the first above. Sizes must be in bytes, and memory \
                 that is no longer used must be freed",
                Release::DEFAULT
            )
        };
        assert_eq!(failures, ["110%", "least"].map(failed));
    }

    #[test]
    fn a_row_that_cannot_be_kept_ends_a_sweep() {
        let plan = plan(SWEEP);
        for jobs in [Jobs::ONE, Jobs::of(NonZeroUsize::new(2))] {
            let runner = Runner::new(&plan, plan.cells.len() as u64, jobs);
            let mut kept = 0;
            let done = |_| {
                kept += 1;
                if kept == 2 {
                    bail!("the disk is full");
                }
                Ok(())
            };
            let error = runner.run_all((0..).zip(&plan.cells), done).unwrap_err();
            assert_eq!((error.to_string().as_str(), kept), ("the disk is full", 2));
        }
    }
}
