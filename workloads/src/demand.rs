//! The demand of a workload, independent of the allocator.

mod kept;

use std::collections::BTreeSet;

use coalesce_alloc::{MempoolId, PoolCall};

use self::kept::Kept;
use crate::live::LiveTable;
use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::replay::{Observer, Step};

/// The demand of a workload if no request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Operations, including marks.
    pub events: u64,
    /// Requests.
    pub allocations: u64,
    /// **Lower bound**: max over time of Σ requested bytes of live allocations. No allocator can run the
    /// workload in less memory, even if it knows the workload in advance.
    pub lower_bound_bytes: u64,
    /// The same with what private pools keep: until a pool is released, what was live in it at once. Equal to
    /// `lower_bound_bytes` without private pools.
    pub lower_bound_with_pools_bytes: u64,
    /// Streams that allocations were requested for or used on.
    pub streams: u64,
    /// Private pools that served requests, of CUDA graphs or of the program itself.
    pub pools: u64,
}

impl Demand {
    /// The demand of a workload.
    ///
    /// # Errors
    /// If the workload cannot be read.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut count = DemandCount::default();
        let mut live = LiveTable::default();
        workload.emit(&mut |op: Op<'_>| {
            let bytes = match op {
                Op::Malloc { id, bytes, .. } => {
                    live.insert(id, bytes);
                    bytes
                }
                Op::Free { id } => live.remove(id).unwrap_or(0),
                _ => 0,
            };
            count.add(op, bytes);
            Ok(Answer::Done)
        })?;
        Ok(count.demand)
    }
}

/// The event, counted from 0, at which the live requested bytes first exceed `most`; the number of events if they never do.
///
/// # Errors
/// If the workload cannot be read.
pub fn first_above(workload: &dyn Workload, most: u64) -> Result<u64, WorkloadError> {
    let (mut event, mut live_bytes, mut is_above) = (0, 0_u64, false);
    let mut live = LiveTable::default();
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc { id, bytes, .. } => {
                live.insert(id, bytes);
                live_bytes = live_bytes.saturating_add(bytes);
            }
            Op::Free { id } => live_bytes = live_bytes.saturating_sub(live.remove(id).unwrap_or(0)),
            _ => {}
        }
        is_above |= live_bytes > most;
        event += u64::from(!is_above);
        Ok(Answer::Done)
    })?;
    Ok(event)
}

/// Counts the demand of a workload while it is replayed.
#[derive(Debug, Default)]
pub struct DemandCount {
    /// The demand so far.
    pub demand: Demand,
    live_bytes: u64,
    kept: Kept,
    streams: BTreeSet<u32>,
    pools: BTreeSet<MempoolId>,
}

impl DemandCount {
    /// Adds an operation, which makes or frees a request of `bytes`.
    fn add(&mut self, op: Op<'_>, bytes: u64) {
        let demand = &mut self.demand;
        demand.events += 1;
        match op {
            Op::Malloc { id, stream, .. } => {
                self.streams.insert(stream);
                demand.streams = self.streams.len() as u64;
                demand.allocations += 1;
                self.live_bytes = self.live_bytes.saturating_add(bytes);
                demand.lower_bound_bytes = demand.lower_bound_bytes.max(self.live_bytes);
                self.kept.malloc(id, bytes);
                let with_pools = demand.lower_bound_with_pools_bytes;
                demand.lower_bound_with_pools_bytes = with_pools.max(self.kept.bytes());
            }
            Op::Free { id } => {
                self.live_bytes = self.live_bytes.saturating_sub(bytes);
                self.kept.free(id, bytes);
            }
            Op::RecordStream { stream, .. } => {
                self.streams.insert(stream);
                demand.streams = self.streams.len() as u64;
            }
            Op::Pool(call) => {
                self.kept.call(call);
                if let PoolCall::Begin(pool) = call {
                    self.pools.insert(pool);
                    demand.pools = self.pools.len() as u64;
                }
            }
            _ => {}
        }
    }
}

impl Observer for DemandCount {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        self.add(step.op, step.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::MempoolId;

    use super::*;
    use crate::written::listed;

    fn example() -> impl Workload {
        let pool = MempoolId(0, 1);
        let on_stream_1 = Op::Malloc {
            id: 2,
            bytes: 100,
            stream: 1,
            tag: "",
        };
        let ops = vec![
            Op::malloc(1, 10),
            Op::Pool(PoolCall::Begin(pool)),
            on_stream_1,
            Op::Free { id: 2 },
            Op::Pool(PoolCall::End(pool)),
            Op::malloc(3, 50),
            Op::RecordStream { id: 3, stream: 2 },
            Op::Free { id: 1 },
            Op::Free { id: 3 },
            Op::EmptyCache,
        ];
        listed("listed", ops)
    }

    #[test]
    fn a_demand_counts_what_a_workload_needs() {
        let demand = Demand::of(&example()).unwrap();
        assert_eq!((demand.events, demand.allocations), (10, 3));
        assert_eq!((demand.streams, demand.pools), (3, 1));
        assert_eq!(demand.lower_bound_bytes, 110);
        // The private pool keeps its 100 bytes, and beside it 60 are live.
        assert_eq!(demand.lower_bound_with_pools_bytes, 160);
    }

    #[test]
    fn the_first_event_above_an_amount_is_found() {
        let first = |most| first_above(&example(), most).unwrap();
        assert_eq!([first(0), first(9), first(10), first(109)], [0, 0, 2, 2]);
        assert_eq!([first(110), first(u64::MAX)], [10, 10]);
    }
}
