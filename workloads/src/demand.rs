//! What a workload asks for, whoever serves it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::replay::{Observer, Step};

/// The demand of a workload that gets all it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Operations, marks included.
    pub events: u64,
    /// Requests.
    pub allocations: u64,
    /// **Lower bound**: max over time of Σ requested bytes of live allocations. No allocator can run
    /// the workload in less memory, whatever it knows beforehand; most cannot in so little.
    pub lower_bound_bytes: u64,
}

impl Demand {
    /// The demand of a workload.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut count = DemandCount::default();
        workload.emit(&mut |op: Op<'_>| {
            count.add(op);
            Ok(Answer::Done)
        })?;
        Ok(count.demand)
    }
}

/// Counts the demand of a workload while it is replayed.
#[derive(Debug, Default)]
pub struct DemandCount {
    /// The demand so far.
    pub demand: Demand,
    live: HashMap<u64, u64, FixedState>,
    live_bytes: u64,
}

impl DemandCount {
    fn add(&mut self, op: Op<'_>) {
        let demand = &mut self.demand;
        demand.events += 1;
        match op {
            Op::Malloc { id, bytes, .. } => {
                demand.allocations += 1;
                self.live.insert(id, bytes);
                self.live_bytes = self.live_bytes.saturating_add(bytes);
                demand.lower_bound_bytes = demand.lower_bound_bytes.max(self.live_bytes);
            }
            Op::Free { id } => {
                let bytes = self.live.remove(&id).unwrap_or(0);
                self.live_bytes = self.live_bytes.saturating_sub(bytes);
            }
            _ => {}
        }
    }
}

impl Observer for DemandCount {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        self.add(step.op);
        Ok(())
    }
}
