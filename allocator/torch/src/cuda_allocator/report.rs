//! Statistics, history and snapshots.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, Listener, TraceEntry};
use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

use super::figures::{Stats, of_pools};
use super::{Outcome, PoolId, SnapshotSink, TakeEntry, TakeExpandableSegment, TakePool, outcome};
use crate::process::DEVICES;

/// A segment of a snapshot. Sizes are in bytes.
#[repr(C)]
pub struct Segment {
    address: u64,
    total_size: u64,
    requested_size: u64,
    allocated_size: u64,
    active_size: u64,
    stream: u64,
    pool: PoolId,
    is_large: bool,
    is_expandable: bool,
}

impl From<&SegmentInfo> for Segment {
    fn from(segment: &SegmentInfo) -> Self {
        Self {
            address: segment.address.0,
            total_size: segment.total_size(),
            requested_size: segment.requested_size(),
            allocated_size: segment.allocated_size(),
            active_size: segment.active_size(),
            stream: segment.stream.0,
            pool: segment.pool.into(),
            is_large: segment.kind == PoolKind::Large,
            is_expandable: segment.is_expandable,
        }
    }
}

/// A block of a segment. Sizes are in bytes.
#[repr(C)]
pub struct Block {
    address: u64,
    size: u64,
    requested_size: u64,
    is_allocated: bool,
    is_active: bool,
}

impl From<&BlockInfo> for Block {
    fn from(block: &BlockInfo) -> Self {
        Self {
            address: block.address.0,
            size: block.size,
            requested_size: block.requested_size,
            is_allocated: block.is_allocated(),
            is_active: block.is_active(),
        }
    }
}

/// # Safety
/// `stats` must be such a structure, and `take` must accept `data`.
pub(super) unsafe extern "C" fn stats(
    device: c_int,
    stats: *mut Stats,
    take: TakePool,
    data: *mut c_void,
) -> Outcome {
    outcome(|| {
        let current = DEVICES.stats(device)?;
        // SAFETY: the caller guarantees it.
        unsafe { stats.write(Stats::from(&current)) };
        for (&pool, array) in &current.reserved_bytes_by_private_pools {
            let figures = of_pools(array);
            take(data, pool.into(), &raw const figures);
        }
        Ok(())
    })
}

pub(super) extern "C" fn reset_peak_stats(device: c_int) -> Outcome {
    outcome(|| DEVICES.reset_peak_stats(device))
}

pub(super) extern "C" fn reset_accumulated_stats(device: c_int) -> Outcome {
    outcome(|| {
        DEVICES.with_used(device, |device| {
            device.reset_accumulated_stats();
            Ok(())
        })?;
        Ok(())
    })
}

/// # Safety
/// `take` must accept `data`.
pub(super) unsafe extern "C" fn expandable_segments(
    device: c_int,
    take: TakeExpandableSegment,
    data: *mut c_void,
) -> Outcome {
    outcome(|| {
        let sizes = DEVICES.with_used(device, |device| Ok(device.expandable_segment_sizes()))?;
        for size in sizes.into_iter().flatten() {
            take(data, size.stream.0, size.is_small, size.mapped);
        }
        Ok(())
    })
}

static TAKE_ENTRY: OnceLock<TakeEntry> = OnceLock::new();

pub(super) extern "C" fn listen(take: TakeEntry) -> Outcome {
    TAKE_ENTRY.get_or_init(|| take);
    outcome(|| DEVICES.listen(listener))
}

/// The listener of a device.
fn listener(ordinal: u32) -> Listener {
    let device = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    Box::new(move |entry, pool| tell(device, entry, pool))
}

fn tell(device: c_int, entry: &TraceEntry, pool: MempoolId) {
    let mut actions = Action::ALL.iter();
    let number = actions.position(|&action| action == entry.action);
    if let (Some(take), Some(action)) = (TAKE_ENTRY.get(), number) {
        let (addr, stream) = (entry.addr.0, entry.stream.0);
        take(
            device,
            action as c_int,
            addr,
            entry.size,
            stream,
            pool.into(),
        );
    }
}

pub(super) extern "C" fn snapshot(device: c_int, pool: PoolId, sink: SnapshotSink) -> Outcome {
    outcome(|| {
        let segments =
            DEVICES.with_used(device, |device| Ok(device.observed_segments(pool.into())))?;
        if segments.is_none() {
            // PyTorch adds the entry for devices that are not used, too.
            let entry = TraceEntry {
                action: Action::Snapshot,
                addr: DeviceAddr::NULL,
                size: 0,
                stream: StreamId::DEFAULT,
                time_us: 0,
            };
            tell(device, &entry, pool.into());
        }
        for segment in segments.into_iter().flatten() {
            let c_form = Segment::from(&segment);
            (sink.segment)(sink.data, &raw const c_form);
            for c_form in segment.blocks.iter().map(Block::from) {
                (sink.block)(sink.data, &raw const c_form);
            }
        }
        Ok(())
    })
}
