//! Figures as C structures.

use std::ffi::c_char;

use coalesce_alloc::error::OutOfMemory;
use coalesce_alloc::stats::{self, DeviceStats, StatArray};

/// One figure over time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stat {
    current: i64,
    peak: i64,
    allocated: i64,
    freed: i64,
}

impl From<stats::Stat> for Stat {
    fn from(stat: stats::Stat) -> Self {
        Self {
            current: stat.current,
            peak: stat.peak,
            allocated: stat.allocated,
            freed: stat.freed,
        }
    }
}

/// The figures of all pools, the small and the large ones.
pub(super) fn of_pools(array: &StatArray) -> [Stat; 3] {
    [array.all(), array.small_pool(), array.large_pool()].map(Stat::from)
}

/// The statistics of a device, each in the order of [`DeviceStats`].
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stats {
    /// [`DeviceStats::arrays`].
    arrays: [[Stat; 3]; 9],
    /// [`DeviceStats::oversize`].
    oversize: [Stat; 2],
    /// [`DeviceStats::scalars`].
    scalars: [i64; 6],
    num_oom_rejections: i64,
}

impl From<&DeviceStats> for Stats {
    fn from(stats: &DeviceStats) -> Self {
        Self {
            arrays: stats.arrays().map(|(_, array)| of_pools(&array)),
            oversize: stats.oversize().map(|(_, stat)| Stat::from(*stat)),
            scalars: stats.scalars().map(|(_, value)| value),
            num_oom_rejections: stats.num_oom_rejections,
        }
    }
}

/// The figures of a failed request, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutOfMemoryFigures {
    device: i64,
    /// Of the segment that the request needed.
    segment: u64,
    /// The limit, or the device's memory without a limit.
    allowed: u64,
    device_free: u64,
}

impl From<&OutOfMemory> for OutOfMemoryFigures {
    fn from(error: &OutOfMemory) -> Self {
        Self {
            device: error.device.into(),
            segment: error.segment,
            allowed: error.limit.unwrap_or(error.device_total),
            device_free: error.device_free,
        }
    }
}

/// The settings that a snapshot reports.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Settings {
    pub(super) garbage_collection_threshold: f64,
    /// In bytes; 2^64 − 1 without a limit.
    pub(super) max_split_size: u64,
    pub(super) roundup_power2_divisions: [u64; 16],
    pub(super) expandable_segments: bool,
    pub(super) release_lock_on_cudamalloc: bool,
    pub(super) graph_capture_record_stream_reuse: bool,
    /// The settings string that was read last.
    pub(super) source: *mut c_char,
}
