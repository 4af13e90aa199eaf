//! What the memory was for when most of it was held.

use allocator::stats::DeviceStats;
use serde::Serialize;
use workloads::op::WorkloadError;
use workloads::replay::{Observer, Step};

/// Reserved memory when it first was at its peak, in parts: they add up to it. All in bytes.
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
    /// **Fragmentation**: free, but part of a segment in use, so that it can neither be returned nor serve a
    /// larger request. None in expandable segments, by PyTorch's count.
    pub inactive_split_bytes: u64,
    /// All other free memory: segments that are free as a whole, and what is free in expandable ones.
    pub cached_bytes: u64,
}

impl Peak {
    fn of(event: u64, stats: &DeviceStats) -> Self {
        let now = |array: &allocator::stats::StatArray| array.all.current.max(0).unsigned_abs();
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
}

impl Observer for FindPeak {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let reserved = step.stats.reserved_bytes.all.current;
        if reserved.cast_unsigned() > self.peak.reserved_bytes && reserved > 0 {
            self.peak = Peak::of(step.event, step.stats);
        }
        Ok(())
    }
}
