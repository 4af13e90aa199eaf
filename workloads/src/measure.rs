//! The measures of a replay, each with its formula and unit.

use coalesce_alloc::stats::DeviceStats;

use crate::op::WorkloadError;
use crate::replay::{Observer, Step};

/// The measures of a replay: bytes and counts, all deterministic.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measures {
    /// **Peak requested**: max over time of Σ requested bytes of blocks that are not free. Failed requests
    /// do not count.
    pub peak_requested_bytes: u64,
    /// **Peak allocated**: max over time of Σ bytes of allocated blocks.
    pub peak_allocated_bytes: u64,
    /// **Peak active**: the same, including blocks that wait for a stream.
    pub peak_active_bytes: u64,
    /// **Peak reserved**: max over time of bytes reserved from the device. With this capacity the program
    /// runs without returning memory.
    pub peak_reserved_bytes: u64,
    /// **Peak inactive split**: max over time of free bytes that cannot be returned because they are part
    /// of a segment in use.
    pub peak_inactive_split_bytes: u64,
    /// Retries: requests repeated after the return of all cached memory.
    pub retries: u64,
    /// Driver calls that took memory.
    pub device_allocs: u64,
    /// Driver calls that returned memory.
    pub device_frees: u64,
    /// Synchronizations of all streams.
    pub syncs: u64,
    /// Successful requests.
    pub allocations: u64,
}

impl Measures {
    /// The measures in the statistics of an allocator, which must not have been reset.
    #[must_use]
    pub fn of(stats: &DeviceStats) -> Self {
        let peak = |array: &coalesce_alloc::stats::StatArray| array.all().peak.cast_unsigned();
        Self {
            peak_requested_bytes: peak(&stats.requested_bytes),
            peak_allocated_bytes: peak(&stats.allocated_bytes),
            peak_active_bytes: peak(&stats.active_bytes()),
            peak_reserved_bytes: peak(&stats.reserved_bytes),
            peak_inactive_split_bytes: peak(&stats.inactive_split_bytes),
            retries: stats.num_alloc_retries.cast_unsigned(),
            device_allocs: stats.num_device_alloc.cast_unsigned(),
            device_frees: stats.num_device_free.cast_unsigned(),
            syncs: stats.num_sync_all_streams.cast_unsigned(),
            allocations: stats.allocation.all().allocated.cast_unsigned(),
        }
    }

    /// **Efficiency**: peak requested / peak reserved; 1 is perfect. None if nothing was reserved. It has no
    /// meaning for a run with failed requests, which requested less than the program does.
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        let (requested, reserved) = (self.peak_requested_bytes, self.peak_reserved_bytes);
        (reserved > 0).then(|| requested as f64 / reserved as f64)
    }

    /// **Fragmentation ratio**: 1 − peak allocated / peak reserved, as in papers. None if nothing was
    /// reserved.
    #[must_use]
    pub fn fragmentation(&self) -> Option<f64> {
        let (allocated, reserved) = (self.peak_allocated_bytes, self.peak_reserved_bytes);
        (reserved > 0).then(|| 1.0 - allocated as f64 / reserved as f64)
    }
}

/// Observes values at the peak of reserved memory, which statistics do not contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtPeak {
    peak_reserved_bytes: u64,
    /// **Inactive split at peak**: free bytes in segments in use when reserved memory first reached its
    /// peak.
    pub inactive_split_bytes: u64,
}

impl Observer for AtPeak {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let reserved = step.stats.reserved_bytes.all().current.cast_unsigned();
        if reserved > self.peak_reserved_bytes {
            self.peak_reserved_bytes = reserved;
            let inactive = step.stats.inactive_split_bytes.all().current;
            self.inactive_split_bytes = inactive.cast_unsigned();
        }
        Ok(())
    }
}
