//! What a workload asks for, whoever serves it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::op::{Answer, Op, Workload, WorkloadError};

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
        let mut demand = Self::default();
        let mut live: HashMap<u64, u64, FixedState> = HashMap::default();
        let mut bytes_live: u64 = 0;
        workload.emit(&mut |op: Op<'_>| {
            demand.events += 1;
            match op {
                Op::Malloc { id, bytes, .. } => {
                    demand.allocations += 1;
                    live.insert(id, bytes);
                    bytes_live = bytes_live.saturating_add(bytes);
                    demand.lower_bound_bytes = demand.lower_bound_bytes.max(bytes_live);
                }
                Op::Free { id } => {
                    bytes_live = bytes_live.saturating_sub(live.remove(&id).unwrap_or(0));
                }
                _ => {}
            }
            Ok(Answer::Done)
        })?;
        Ok(demand)
    }
}
