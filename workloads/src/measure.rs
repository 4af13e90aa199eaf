//! What is measured: each figure in words, as a formula, with its unit.

use coalesce_alloc::stats::DeviceStats;

use crate::op::WorkloadError;
use crate::replay::{Observer, Step};

/// What an allocator did with a workload. Bytes and counts; all of it is deterministic.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measures {
    /// **Peak requested**: the most bytes the program had asked for, and been given, at one time. max
    /// over time of Σ requested bytes of blocks not yet free. Requests that failed are not in it.
    pub peak_requested_bytes: u64,
    /// **Peak allocated**: the same with the bytes of the blocks that were handed out.
    pub peak_allocated_bytes: u64,
    /// **Peak active**: the same with blocks that wait for a stream.
    pub peak_active_bytes: u64,
    /// **Peak reserved**: the most bytes held from the device at one time. What a program needs to
    /// run without ever giving memory back.
    pub peak_reserved_bytes: u64,
    /// **Peak inactive split**: the most bytes that were free but could not be returned, being part
    /// of a segment in use.
    pub peak_inactive_split_bytes: u64,
    /// Times memory was asked for again after all cached memory had been returned.
    pub retries: u64,
    /// Times memory was taken from the device.
    pub device_allocs: u64,
    /// Times memory was returned to the device.
    pub device_frees: u64,
    /// Times all streams were waited for.
    pub syncs: u64,
    /// Requests that were served.
    pub allocations: u64,
}

impl Measures {
    /// The measures in an allocator's statistics, which must not have been reset.
    #[must_use]
    pub fn of(stats: &DeviceStats) -> Self {
        let peak = |array: &coalesce_alloc::stats::StatArray| array.all.peak.cast_unsigned();
        Self {
            peak_requested_bytes: peak(&stats.requested_bytes),
            peak_allocated_bytes: peak(&stats.allocated_bytes),
            peak_active_bytes: peak(&stats.active_bytes),
            peak_reserved_bytes: peak(&stats.reserved_bytes),
            peak_inactive_split_bytes: peak(&stats.inactive_split_bytes),
            retries: stats.num_alloc_retries.cast_unsigned(),
            device_allocs: stats.num_device_alloc.cast_unsigned(),
            device_frees: stats.num_device_free.cast_unsigned(),
            syncs: stats.num_sync_all_streams.cast_unsigned(),
            allocations: stats.allocation.all.allocated.cast_unsigned(),
        }
    }

    /// **Efficiency**: peak requested / peak reserved, the share of the memory held that the program
    /// had asked for; 1 is perfect. None if nothing was held. It says nothing of a run in which
    /// requests failed, for that asked for less than the program does.
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        let (requested, reserved) = (self.peak_requested_bytes, self.peak_reserved_bytes);
        (reserved > 0).then(|| requested as f64 / reserved as f64)
    }

    /// **Fragmentation ratio**: 1 − peak allocated / peak reserved, as papers have it. None as with
    /// [efficiency](Self::efficiency).
    #[must_use]
    pub fn fragmentation(&self) -> Option<f64> {
        let (allocated, reserved) = (self.peak_allocated_bytes, self.peak_reserved_bytes);
        (reserved > 0).then(|| 1.0 - allocated as f64 / reserved as f64)
    }
}

/// Watches for what statistics forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AtPeak {
    peak_reserved_bytes: u64,
    /// **Inactive split at peak**: bytes that were free but part of a segment in use when reserved
    /// memory was first at its peak: what that peak was higher for.
    pub inactive_split_bytes: u64,
}

impl Observer for AtPeak {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let reserved = step.stats.reserved_bytes.all.current.cast_unsigned();
        if reserved > self.peak_reserved_bytes {
            self.peak_reserved_bytes = reserved;
            let inactive = step.stats.inactive_split_bytes.all.current;
            self.inactive_split_bytes = inactive.cast_unsigned();
        }
        Ok(())
    }
}
