//! Address space apart from memory. None of these needs a current context.
#![expect(unsafe_code, reason = "functions that C calls")]

use coalesce_alloc::driver::sim::GRANULARITY;

use crate::border::{In, Out, entry_points};
use crate::errors::{Code, Outcome};
use crate::state::Sim;

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
    pub handle_types: i32,
    pub location: Location,
    pub win32_metadata: u64,
    /// How it may be compressed and used.
    pub flags: [u8; 8],
}

const _: () = assert!(size_of::<AllocationProperties>() == 32, "as in CUDA 13.0");

impl Location {
    /// The device it is on.
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

    fn cuMemAddressFree(addr: u64, bytes: u64) |sim| {
        sim.free_address(addr, bytes)
    }

    fn cuMemCreate(
        handle: Out<u64>,
        bytes: u64,
        what: In<AllocationProperties>,
        _flags: u64,
    ) |sim| {
        handle.fill(|| {
            let ordinal = what.get()?.location.device(sim)?;
            sim.create(ordinal, bytes)
        })
    }

    fn cuMemRelease(handle: u64) |sim| {
        sim.release(handle)
    }

    fn cuMemMap(addr: u64, bytes: u64, offset: u64, handle: u64, _flags: u64) |sim| {
        sim.map(addr, bytes, offset, handle)
    }

    fn cuMemUnmap(addr: u64, bytes: u64) |sim| {
        sim.unmap(addr, bytes)
    }

    fn cuMemSetAccess(addr: u64, bytes: u64, _who: u64, _count: u64) |sim| {
        sim.set_access(addr, bytes)
    }

    fn cuMemExportToShareableHandle(_to: u64, _handle: u64, _kind: i32, _flags: u64) |_| {
        Err(Code::NOT_SUPPORTED)
    }

    fn cuMemImportFromShareableHandle(_handle: Out<u64>, _from: u64, _kind: i32) |_| {
        Err(Code::NOT_SUPPORTED)
    }

    fn cuMemRetainAllocationHandle(_handle: Out<u64>, _addr: u64) |_| {
        Err(Code::NOT_SUPPORTED)
    }

    fn cuMemGetAllocationPropertiesFromHandle(
        _what: Out<AllocationProperties>,
        _handle: u64,
    ) |_| {
        Err(Code::NOT_SUPPORTED)
    }
}
