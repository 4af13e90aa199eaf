//! What memory is used for at the peak.

use coalesce_alloc::stats::{DeviceStats, StatArray};
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::{Observer, Step};
use schemars::JsonSchema;
use serde::Serialize;

/// The parts of reserved memory at its peak, which add up to it, in bytes.
///
/// Reserved memory may stay at its peak for long. The figures are those of the event during that time at
/// which most was requested; the rest is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct PeakBreakdown {
    /// The event, counted from 0.
    pub event: u64,
    /// Reserved from the device.
    pub reserved_bytes: u64,
    /// Requested by live tensors.
    pub requested_bytes: u64,
    /// **Rounding**: what their blocks have beyond that, because sizes are rounded up and small remainders
    /// are not split off.
    pub rounding_bytes: u64,
    /// Freed by the program, but another stream may still use it. Includes rounding.
    pub pending_bytes: u64,
    /// **Fragmentation**: free, but in a partly used segment, so that it can neither be returned nor serve a
    /// larger request. PyTorch counts none in expandable segments.
    pub inactive_split_bytes: u64,
    /// All other free memory: unused segments, and free memory in expandable segments.
    pub cached_bytes: u64,
}

/// The current value of a statistic of both pools.
pub(super) fn now(array: &StatArray) -> u64 {
    array.all().current.max(0).unsigned_abs()
}

impl PeakBreakdown {
    fn of(event: u64, stats: &DeviceStats) -> Self {
        let reserved = now(&stats.reserved_bytes);
        let (active, allocated) = (now(&stats.active_bytes()), now(&stats.allocated_bytes));
        let pending = active.saturating_sub(allocated);
        // The counter of requested memory includes pending blocks, to an unknown amount.
        let requested = now(&stats.requested_bytes).min(allocated);
        let inactive_split = now(&stats.inactive_split_bytes);
        Self {
            event,
            reserved_bytes: reserved,
            requested_bytes: requested,
            rounding_bytes: allocated - requested,
            pending_bytes: pending,
            inactive_split_bytes: inactive_split,
            cached_bytes: reserved
                .saturating_sub(active)
                .saturating_sub(inactive_split),
        }
    }
}

/// Finds the peak of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeakFinder {
    /// The highest peak so far.
    pub peak: PeakBreakdown,
    /// Bytes requested at that peak, including pending blocks.
    requested: u64,
}

impl Observer for PeakFinder {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let reserved = now(&step.stats.reserved_bytes);
        let requested = now(&step.stats.requested_bytes);
        if (reserved, requested) > (self.peak.reserved_bytes, self.requested) {
            self.peak = PeakBreakdown::of(step.event, step.stats);
            self.requested = requested;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::stats::PoolKind;
    use coalesce_workloads::op::Op;
    use coalesce_workloads::replay::Outcome;

    use super::*;

    #[test]
    fn the_parts_add_up_to_reserved_memory_when_most_is_requested() {
        let mut stats = DeviceStats::default();
        let mut finder = PeakFinder::default();
        let mut see = |event: u64, stats: &DeviceStats| {
            let (op, outcome) = (Op::EmptyCache, Outcome::Done);
            let step = Step {
                event,
                op,
                outcome,
                bytes: 0,
                stats,
            };
            finder.after(&step).unwrap();
        };
        stats.reserved_bytes.increase(PoolKind::Large, 100);
        see(0, &stats);
        stats.requested_bytes.increase(PoolKind::Large, 50);
        stats.allocated_bytes.increase(PoolKind::Large, 55);
        stats.waiting.bytes.increase(PoolKind::Large, 5);
        stats.inactive_split_bytes.increase(PoolKind::Large, 30);
        see(1, &stats);
        stats.requested_bytes.decrease(PoolKind::Large, 20);
        see(2, &stats);
        let expected = PeakBreakdown {
            event: 1,
            reserved_bytes: 100,
            requested_bytes: 50,
            rounding_bytes: 5,
            pending_bytes: 5,
            inactive_split_bytes: 30,
            cached_bytes: 10,
        };
        assert_eq!(finder.peak, expected);
    }
}
