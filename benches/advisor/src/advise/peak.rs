//! What the memory was for when most of it was held.

use coalesce_alloc::stats::{DeviceStats, StatArray};
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::{Observer, Step};
use serde::Serialize;

/// Reserved memory at its peak, in parts: they add up to it. All in bytes.
///
/// Nothing may be returned for long once it is there; of all that time, it is the moment when most was
/// asked for. What is not asked for then is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Peak {
    /// The event, counted from 0.
    pub event: u64,
    /// Held from the device.
    pub reserved_bytes: u64,
    /// Asked for by what lived then.
    pub requested_bytes: u64,
    /// **Rounding**: what its blocks had beyond that, for sizes are rounded and little is not cut off.
    pub rounding_bytes: u64,
    /// Given back by the program, but waiting for another stream. Rounding of these is in it.
    pub pending_bytes: u64,
    /// **Fragmentation**: free, but part of a segment in use, so that it can neither be returned nor
    /// serve a larger request. None in expandable segments, by PyTorch's count.
    pub inactive_split_bytes: u64,
    /// All other free memory: segments that are free as a whole, and what is free in expandable ones.
    pub cached_bytes: u64,
}

impl Peak {
    fn of(event: u64, stats: &DeviceStats) -> Self {
        let now = |array: &StatArray| array.all.current.max(0).unsigned_abs();
        let reserved = now(&stats.reserved_bytes);
        let (active, allocated) = (now(&stats.active_bytes), now(&stats.allocated_bytes));
        let pending = active.saturating_sub(allocated);
        // Requested memory counts that of pending blocks, too; how much is not counted.
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

/// Finds the peak of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct FindPeak {
    /// The highest so far.
    pub peak: Peak,
    /// Bytes asked for then, those of blocks that wait for a stream included.
    asked: u64,
}

impl Observer for FindPeak {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let now = |array: &StatArray| array.all.current.max(0).unsigned_abs();
        let held = now(&step.stats.reserved_bytes);
        let asked = now(&step.stats.requested_bytes);
        if (held, asked) > (self.peak.reserved_bytes, self.asked) {
            self.peak = Peak::of(step.event, step.stats);
            self.asked = asked;
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
    fn the_parts_add_up_to_what_is_held_when_most_is_asked_for() {
        let mut stats = DeviceStats::default();
        let mut find = FindPeak::default();
        let mut see = |event: u64, stats: &DeviceStats| {
            let (op, outcome) = (Op::EmptyCache, Outcome::Done);
            let step = Step {
                event,
                op,
                outcome,
                stats,
            };
            find.after(&step).unwrap();
        };
        stats.reserved_bytes.increase(PoolKind::Large, 100);
        see(0, &stats);
        stats.requested_bytes.increase(PoolKind::Large, 50);
        stats.allocated_bytes.increase(PoolKind::Large, 55);
        stats.active_bytes.increase(PoolKind::Large, 60);
        stats.inactive_split_bytes.increase(PoolKind::Large, 30);
        see(1, &stats);
        stats.requested_bytes.decrease(PoolKind::Large, 20);
        see(2, &stats);
        let expected = Peak {
            event: 1,
            reserved_bytes: 100,
            requested_bytes: 50,
            rounding_bytes: 5,
            pending_bytes: 5,
            inactive_split_bytes: 30,
            cached_bytes: 10,
        };
        assert_eq!(find.peak, expected);
    }
}
