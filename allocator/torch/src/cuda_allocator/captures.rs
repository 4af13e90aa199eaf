//! Captures, and what trees of CUDA graphs need (`torch.compile`): checkpoints of private pools.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};

use coalesce_alloc::Checkpoint;
use coalesce_alloc::driver::DeviceAddr;

use super::{Outcome, PoolId, TakeAddress, outcome};
use crate::process::DEVICES;

pub(super) extern "C" fn begin(device: c_int) -> Outcome {
    outcome(|| {
        DEVICES.with(device, |device| {
            device.mark_capture_begin();
            Ok(())
        })
    })
}

pub(super) extern "C" fn end(device: c_int) -> Outcome {
    outcome(|| DEVICES.with(device, |device| Ok(device.mark_capture_end()?)))
}

/// # Safety
/// `addresses` must be so many numbers, `are` a `bool`.
pub(super) unsafe extern "C" fn live_allocations_are(
    device: c_int,
    pool: PoolId,
    addresses: *const u64,
    count: usize,
    are: *mut bool,
) -> Outcome {
    let expected: HashSet<DeviceAddr> = match count {
        0 => HashSet::new(),
        // SAFETY: the caller guarantees it.
        _ => unsafe { std::slice::from_raw_parts(addresses, count) }
            .iter()
            .copied()
            .map(DeviceAddr)
            .collect(),
    };
    outcome(|| {
        let equal = DEVICES.with(device, |device| {
            Ok(device
                .pools_with(pool.into())?
                .pool_live_allocations_are(pool.into(), &expected)?)
        })?;
        // SAFETY: the caller guarantees it.
        unsafe { are.write(equal) };
        Ok(())
    })
}

/// # Safety
/// `checkpoint` must be a place for a pointer.
pub(super) unsafe extern "C" fn checkpoint(
    device: c_int,
    pool: PoolId,
    checkpoint: *mut *mut Checkpoint,
) -> Outcome {
    outcome(|| {
        let taken = DEVICES.with(device, |device| {
            Ok(device
                .pools_with(pool.into())?
                .checkpoint_pool(pool.into())?)
        })?;
        // SAFETY: the caller guarantees it.
        unsafe { checkpoint.write(Box::into_raw(Box::new(taken))) };
        Ok(())
    })
}

/// # Safety
/// `checkpoint` must come from [`checkpoint`] and is not used any more.
pub(super) unsafe extern "C" fn release_checkpoint(checkpoint: *mut Checkpoint) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(checkpoint) });
}

/// # Safety
/// `checkpoint` must come from [`checkpoint`] and live; the functions must accept `data`.
pub(super) unsafe extern "C" fn restore(
    device: c_int,
    checkpoint: *const Checkpoint,
    take_freed: TakeAddress,
    take_allocated: TakeAddress,
    data: *mut c_void,
) -> Outcome {
    // SAFETY: the caller guarantees it.
    let checkpoint = unsafe { &*checkpoint };
    outcome(|| {
        let restored = DEVICES.with(device, |device| {
            Ok(device.pools()?.restore_pool(checkpoint)?)
        })?;
        for addr in restored.freed {
            take_freed(data, addr.0);
        }
        for addr in restored.allocated {
            take_allocated(data, addr.0);
        }
        Ok(())
    })
}
