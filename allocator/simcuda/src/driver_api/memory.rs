//! Virtual memory, and functions for memory and pools that do not behave as those of the runtime's API.

use coalesce_alloc::driver::GRANULARITY;

use crate::border::{In, Out, entry_points};
use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

entry_points! { driver:
    fn cuMemAlloc_v2(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| sim.malloc(context::required()?, bytes))
    }
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: i32 = 1;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Location {
    pub kind: i32,
    pub ordinal: i32,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationProperties {
    pub kind: i32,
    /// How other processes may get the memory, as bits.
    pub handle_types: u32,
    pub location: Location,
    pub win32_metadata: u64,
    /// Compression and usage flags.
    pub flags: [u8; 8],
}

const _: () = assert!(size_of::<AllocationProperties>() == 32, "as in CUDA 13.0");

impl Location {
    /// The ordinal of the device.
    pub(crate) fn device(self, sim: &Sim) -> Outcome<u32> {
        if self.kind != ON_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        sim.ordinal(self.ordinal).map_err(|_| Code::INVALID_VALUE)
    }
}

fn ensure_virtual_memory(sim: &Sim) -> Outcome {
    if sim.settings.device.virtual_memory {
        Ok(())
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

// Virtual memory needs no current context.
entry_points! { driver:
    fn cuMemGetAllocationGranularity(
        bytes: Out<u64>,
        _what: In<AllocationProperties>,
        _how: i32,
    ) |sim| {
        ensure_virtual_memory(sim)?;
        bytes.set(GRANULARITY)
    }

    fn cuMemAddressReserve(
        addr: Out<u64>,
        bytes: u64,
        _alignment: u64,
        _wish: u64,
        _flags: u64,
    ) |sim| {
        addr.fill(|| sim.reserve(bytes))
    }

    fn cuMemAddressFree(addr: u64, bytes: u64) |sim| { sim.free_address(addr, bytes) }

    fn cuMemCreate(
        handle: Out<u64>,
        bytes: u64,
        what: In<AllocationProperties>,
        _flags: u64,
    ) |sim| {
        handle.fill(|| {
            let what = what.get()?;
            let ordinal = what.location.device(sim)?;
            let types = u8::try_from(what.handle_types).map_err(|_| Code::INVALID_VALUE)?;
            sim.create(ordinal, bytes, types)
        })
    }

    fn cuMemRelease(handle: u64) |sim| { sim.release(handle) }

    fn cuMemMap(addr: u64, bytes: u64, offset: u64, handle: u64, _flags: u64) |sim| {
        sim.map(addr, bytes, offset, handle)
    }

    fn cuMemUnmap(addr: u64, bytes: u64) |sim| { sim.unmap(addr, bytes) }

    fn cuMemSetAccess(addr: u64, bytes: u64, _who: u64, _count: u64) |sim| {
        sim.set_access(addr, bytes)
    }

    fn cuMemRetainAllocationHandle(_handle: Out<u64>, _addr: u64) |_| { Err(Code::NOT_SUPPORTED) }

    fn cuMemGetAllocationPropertiesFromHandle(
        _what: Out<AllocationProperties>,
        _handle: u64,
    ) |_| {
        Err(Code::NOT_SUPPORTED)
    }
}

/// The beginning of `CUmemPoolProps`. The fields after it limit and share pools.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolProperties {
    pub kind: i32,
    pub handle_types: i32,
    pub location: Location,
}

entry_points! { driver:
    fn cuMemPoolCreate(pool: Out<u64>, what: In<PoolProperties>) |sim| {
        pool.fill(|| {
            let ordinal = what.get()?.location.device(sim)?;
            sim.create_pool(ordinal)
        })
    }

    fn cuMemPoolDestroy(pool: u64) |sim| { sim.destroy_pool(pool) }

    fn cuMemAllocAsync(addr: Out<u64>, bytes: u64, stream: u64) |sim| {
        addr.fill(|| sim.malloc_in_pool(context::required()?, None, bytes, stream))
    }

    fn cuMemAllocFromPoolAsync(addr: Out<u64>, bytes: u64, pool: u64, stream: u64) |sim| {
        addr.fill(|| sim.malloc_in_pool(context::required()?, Some(pool), bytes, stream))
    }

    fn cuMemFreeAsync(addr: u64, stream: u64) |sim| {
        match addr {
            0 => Err(Code::INVALID_VALUE),
            _ => sim.free_in_pool_on(context::required()?, addr, stream),
        }
    }
}
