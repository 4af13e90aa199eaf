//! Cells, on all cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use allocator::driver::sim::address::AddressPolicy;
use anyhow::anyhow;

use super::plan::{Plan, Planned};
use crate::capacity::{Capacity, share};
use crate::cell::Cell;
use crate::least::{Least, least};
use crate::progress::Progress;
use crate::record::Row;
use crate::timing;

/// Runs cells of a plan, and shows how far it is.
pub struct Runner<'a> {
    plan: &'a Plan,
    /// Least capacities that are known, or are being found.
    least: Mutex<HashMap<Search, Found>>,
    progress: Progress,
}

/// What a search for the least capacity is about.
type Search = (usize, String, String, &'static str);
type Found = Arc<OnceLock<Result<Least, String>>>;

/// What came of one cell.
pub type Measured = anyhow::Result<Row>;

impl<'a> Runner<'a> {
    /// A runner that will be asked for `cells` cells.
    #[must_use]
    pub fn new(plan: &'a Plan, cells: u64) -> Self {
        let progress = Progress::new("cells", Some(cells));
        Self {
            plan,
            least: Mutex::default(),
            progress,
        }
    }

    /// Runs cells on all cores, in no order. `done` gets what came of each, one at a time, and ends
    /// the work with an error. A cell that fails does not end it.
    ///
    /// # Errors
    /// The first error of `done`.
    pub fn run_all<'c>(
        &self,
        cells: impl Iterator<Item = (u64, &'c Planned)> + Send,
        done: impl FnMut(u64, Measured) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<()> {
        let queue = Mutex::new(cells);
        let sink = Mutex::new((done, Ok(())));
        let next = || lock(&queue).next();
        let work = || {
            while let Some((number, cell)) = next() {
                let measured = self.run(number, cell);
                let (done, outcome) = &mut *lock(&sink);
                if outcome.is_ok() {
                    *outcome = done(number, measured);
                }
                if outcome.is_err() {
                    return;
                }
                self.progress
                    .add(1, self.plan.workloads[cell.workload].workload.name());
            }
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let (_, outcome) = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome
    }

    /// Runs one cell.
    fn run(&self, number: u64, planned: &Planned) -> Measured {
        let entry = &self.plan.workloads[planned.workload];
        let cell = Cell {
            workload: entry.workload.as_ref(),
            demand: entry.demand()?,
            policy: &planned.policy,
            setting: &planned.setting,
            conf: &planned.conf,
            address_policy: planned.address_policy,
            profile: &self.plan.profile,
        };
        let (capacity, fails_above) = match planned.capacity {
            Capacity::Bytes(bytes) => (bytes, None),
            Capacity::OfDemand(percent) => (share(cell.demand.lower_bound_bytes, percent), None),
            Capacity::Least { more } => {
                let least = self.least(planned, &cell)?;
                (share(least.bytes, 100 + more), least.fails_above)
            }
        };
        let row = cell.measure(capacity, &mut ())?;
        let row = timing::time(&cell, row, planned.timing)?;
        Ok(Row {
            seed: entry.seed,
            family: entry.family.clone(),
            capacity: planned.capacity.to_string(),
            fails_above_bytes: fails_above,
            sweep: self.plan.digest.clone(),
            cell: number,
            cells: self.plan.cells.len() as u64,
            ..row
        })
    }

    /// The least capacity, found once for all cells that need it.
    fn least(&self, planned: &Planned, cell: &Cell<'_>) -> anyhow::Result<Least> {
        let addresses: AddressPolicy = planned.address_policy;
        let (policy, conf) = (planned.policy.clone(), planned.conf.clone());
        let search = (planned.workload, policy, conf, addresses.name());
        let found = Arc::clone(lock(&self.least).entry(search).or_default());
        let find = || least(cell).map_err(|error| format!("{error:#}"));
        found
            .get_or_init(find)
            .clone()
            .map_err(|reason| anyhow!(reason))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
