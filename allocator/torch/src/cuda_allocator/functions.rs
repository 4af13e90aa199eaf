//! Allocations, the cache and the settings.

use std::ffi::{c_char, c_int};

use coalesce_alloc::driver::{DeviceAddr, StreamId};

use super::figures::{OutOfMemoryFigures, Settings};
use super::{Collect, Outcome, PoolId, outcome};
use crate::failure::Failure;
use crate::process::DEVICES;
use crate::text::text;

/// # Safety
/// `failure` must come from this library and live; `bytes` must be a `size_t`.
pub(super) unsafe extern "C" fn failure_message(
    failure: *const Failure,
    bytes: *mut usize,
) -> *const c_char {
    // SAFETY: the caller guarantees it.
    let message = unsafe {
        let message = &(*failure).message;
        bytes.write(message.len());
        message
    };
    message.as_ptr().cast()
}

/// # Safety
/// `failure` must come from this library and live.
pub(super) unsafe extern "C" fn failure_is_out_of_memory(failure: *const Failure) -> bool {
    // SAFETY: the caller guarantees it.
    unsafe { (*failure).is_out_of_memory }
}

/// # Safety
/// `failure` must come from this library and live; `figures` must be such a structure.
pub(super) unsafe extern "C" fn failure_figures(
    failure: *const Failure,
    figures: *mut OutOfMemoryFigures,
) -> bool {
    // SAFETY: the caller guarantees it.
    unsafe {
        let Some(error) = &(*failure).figures else {
            return false;
        };
        figures.write(OutOfMemoryFigures::from(&**error));
    }
    true
}

/// # Safety
/// `failure` must come from this library and is not used any more.
pub(super) unsafe extern "C" fn release_failure(failure: *mut Failure) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(failure) });
}

/// # Safety
/// `addr` must be a number.
pub(super) unsafe extern "C" fn malloc(
    device: c_int,
    bytes: u64,
    stream: u64,
    collect: Collect,
    addr: *mut u64,
) -> Outcome {
    outcome(|| {
        let placed = DEVICES.malloc_collecting(device, bytes, StreamId(stream), || collect())?;
        // SAFETY: the caller guarantees it.
        unsafe { addr.write(placed.0) };
        Ok(())
    })
}

pub(super) extern "C" fn free(addr: u64) -> Outcome {
    outcome(|| DEVICES.free_block(DeviceAddr(addr)))
}

/// # Safety
/// `device` and `bytes` must be numbers.
pub(super) unsafe extern "C" fn block(addr: u64, device: *mut c_int, bytes: *mut u64) -> Outcome {
    let addr = DeviceAddr(addr);
    outcome(|| {
        let block = DEVICES.owner(|ordinal, device| Ok((ordinal, device.block_size(addr)?)))?;
        let (ordinal, size) =
            block.ok_or_else(|| DEVICES.invalid(addr, DEVICES.stack().as_ref()))?;
        // SAFETY: the caller guarantees it.
        unsafe {
            device.write(c_int::try_from(ordinal).unwrap_or(c_int::MAX));
            bytes.write(size);
        }
        Ok(())
    })
}

pub(super) extern "C" fn record_stream(addr: u64, stream: u64) -> Outcome {
    outcome(|| DEVICES.record_stream(DeviceAddr(addr), StreamId(stream)))
}

/// # Safety
/// `base` and `bytes` must be numbers.
pub(super) unsafe extern "C" fn base_allocation(
    addr: u64,
    base: *mut u64,
    bytes: *mut u64,
) -> Outcome {
    outcome(|| {
        let (start, size) = DEVICES.base_allocation(DeviceAddr(addr))?;
        // SAFETY: the caller guarantees it.
        unsafe {
            base.write(start.0);
            bytes.write(size);
        }
        Ok(())
    })
}

pub(super) extern "C" fn empty_cache(device: c_int, pool: PoolId) -> Outcome {
    outcome(|| DEVICES.empty_cache_of(device, pool.into()))
}

/// # Safety
/// `fraction` must be a number.
pub(super) unsafe extern "C" fn memory_fraction(device: c_int, fraction: *mut f64) -> Outcome {
    outcome(|| {
        let current = DEVICES.with_used(device, |device| Ok(device.memory_fraction()))?;
        // SAFETY: the caller guarantees it.
        unsafe { fraction.write(current.unwrap_or(1.0)) };
        Ok(())
    })
}

pub(super) extern "C" fn set_memory_fraction(device: c_int, fraction: f64) -> Outcome {
    outcome(|| DEVICES.set_memory_fraction(device, fraction))
}

/// # Safety
/// `bytes` must be a number.
pub(super) unsafe extern "C" fn largest_free(device: c_int, bytes: *mut u64) -> Outcome {
    outcome(|| {
        let largest = DEVICES.with(device, |device| Ok(device.largest_free()?))?;
        // SAFETY: the caller guarantees it.
        unsafe { bytes.write(largest) };
        Ok(())
    })
}

pub(super) extern "C" fn open_to_peer(device: c_int, peer: c_int) -> Outcome {
    outcome(|| {
        DEVICES.with(device, |device| {
            Ok(device.open_to_peer(peer.unsigned_abs())?)
        })
    })
}

/// # Safety
/// `settings` must be such a structure.
pub(super) unsafe extern "C" fn settings(settings: *mut Settings) -> Outcome {
    outcome(|| {
        let current = DEVICES.settings()?;
        let c_form = Settings {
            garbage_collection_threshold: current.garbage_collection_threshold(),
            max_split_size: current.max_split_size().unwrap_or(u64::MAX),
            roundup_power2_divisions: *current.roundup().divisions(),
            expandable_segments: current.expandable_segments(),
            release_lock_on_cudamalloc: current.release_lock_on_cudamalloc(),
            graph_capture_record_stream_reuse: current.graph_capture_record_stream_reuse(),
            source: text(current.source().to_owned()),
        };
        // SAFETY: the caller guarantees it.
        unsafe { settings.write(c_form) };
        Ok(())
    })
}
