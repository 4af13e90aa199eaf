//! Private pools.

use std::ffi::{c_int, c_void};

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::{PoolSource, StreamFilter};

use super::{Accepts, Drops, Filter, FreeSegment, MallocSegment, Outcome, PoolId, Source, outcome};
use crate::process::DEVICES;

/// What belongs to a callback, until it is dropped.
struct Data {
    data: *mut c_void,
    drop: Drops,
}

// SAFETY: the C++ class passes objects that any thread may use, one at a time: the lock of the device is held.
unsafe impl Send for Data {}

impl Drop for Data {
    fn drop(&mut self) {
        (self.drop)(self.data);
    }
}

/// The allocator of a `torch.cuda.MemPool`.
struct OtherAllocator {
    data: Data,
    malloc: MallocSegment,
    free: FreeSegment,
}

impl PoolSource for OtherAllocator {
    fn malloc(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let addr = DeviceAddr((self.malloc)(self.data.data, bytes));
        (!addr.is_null()).then_some(addr)
    }

    fn free(&mut self, addr: DeviceAddr, _bytes: u64) {
        (self.free)(self.data.data, addr.0);
    }
}

/// # Safety
/// `source` must be null or such a structure, whose functions accept its data.
pub(super) unsafe extern "C" fn create_or_use(
    device: c_int,
    pool: PoolId,
    source: *const Source,
) -> Outcome {
    // SAFETY: the caller guarantees it.
    let source = unsafe { source.as_ref() }.map(|source| -> Box<dyn PoolSource> {
        Box::new(OtherAllocator {
            data: Data {
                data: source.data,
                drop: source.drop,
            },
            malloc: source.malloc,
            free: source.free,
        })
    });
    outcome(|| {
        if source.is_some() {
            DEVICES.serve_special_pools(device)?;
        }
        DEVICES.with(device, |device| {
            Ok(device.create_or_use_pool(pool.into(), source)?)
        })
    })
}

pub(super) extern "C" fn begin(device: c_int, pool: PoolId, filter: Filter) -> Outcome {
    let data = Data {
        data: filter.data,
        drop: filter.drop,
    };
    let accepts = stream_filter(data, filter.accepts);
    outcome(|| {
        DEVICES.with(device, |device| {
            Ok(device.begin_allocate_to_pool(pool.into(), accepts)?)
        })
    })
}

fn stream_filter(data: Data, accepts: Accepts) -> StreamFilter {
    Box::new(move |stream: StreamId| {
        let data = &data;
        accepts(data.data, stream.0)
    })
}

pub(super) extern "C" fn end(device: c_int, pool: PoolId) -> Outcome {
    outcome(|| {
        DEVICES.with(device, |device| {
            Ok(device.end_allocate_to_pool(pool.into())?)
        })
    })
}

pub(super) extern "C" fn release(device: c_int, pool: PoolId) -> Outcome {
    outcome(|| {
        DEVICES.with(device, |device| {
            Ok(device.pools_with(pool.into())?.release_pool(pool.into())?)
        })
    })
}

/// # Safety
/// `count` must be a number.
pub(super) unsafe extern "C" fn use_count(device: c_int, pool: PoolId, count: *mut u64) -> Outcome {
    outcome(|| {
        let users = DEVICES.with(device, |device| {
            Ok(device
                .pools_with(pool.into())?
                .pool_use_count(pool.into())?)
        })?;
        // SAFETY: the caller guarantees it.
        unsafe { count.write(users) };
        Ok(())
    })
}

pub(super) extern "C" fn set_use_on_oom(device: c_int, pool: PoolId, on: bool) -> Outcome {
    outcome(|| {
        if on {
            DEVICES.serve_special_pools(device)?;
        }
        DEVICES.with(device, |device| Ok(device.set_use_on_oom(pool.into(), on)?))
    })
}

pub(super) extern "C" fn set_no_split(device: c_int, pool: PoolId) -> Outcome {
    outcome(|| {
        DEVICES.serve_special_pools(device)?;
        DEVICES.with(device, |device| Ok(device.set_no_split(pool.into())?))
    })
}
