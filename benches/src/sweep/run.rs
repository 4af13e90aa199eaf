//! Runs cells, several at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::anyhow;
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::Release;

use super::plan::{Plan, Planned};
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
        cells: impl Iterator<Item = (u64, &'c Planned)> + Send,
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
    fn run(&self, number: u64, planned: &Planned) -> anyhow::Result<Row> {
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

    fn measure(&self, planned: &Planned, cell: &Cell<'_>) -> Result<Row, Failure> {
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
        let row = cell.measure(capacity, &mut ())?;
        let row = throughput::time(cell, row, planned.timing)?;
        Ok(Row {
            fails_above_bytes: fails_above,
            ..row
        })
    }

    /// The minimum device memory, searched once for all cells that need it.
    fn least(&self, planned: &Planned, cell: &Cell<'_>) -> Result<Least, Failure> {
        let (policy, conf) = (planned.policy.clone(), planned.conf.clone());
        let addresses = planned.address_policy.name();
        let search = (planned.workload, policy, planned.release, conf, addresses);
        let found = Arc::clone(lock(&self.least).entry(search).or_default());
        let find = || least(cell).map_err(Failure::from);
        found.get_or_init(find).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
