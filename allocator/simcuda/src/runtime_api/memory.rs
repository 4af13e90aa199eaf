//! Memory on devices and on the host, and stream-ordered pools.

use crate::border::{Out, entry_points};
use crate::driver_api::{get_attribute, set_attribute};

/// `cudaMemoryTypeUnregistered`, `cudaMemoryTypeDevice`.
const UNREGISTERED: i32 = 0;
const ON_DEVICE: i32 = 2;

/// The device of memory that is on no device (`cudaInvalidDeviceId`).
const NO_DEVICE: i32 = -2;

/// `cudaPointerAttributes`, without the reserved fields at its end, which only CUDA 13 has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
}

const _: () = assert!(size_of::<PointerAttributes>() == 24, "as in CUDA 12");

entry_points! { runtime:
    fn cudaMemGetInfo(free: Out<u64>, total: Out<u64>) |sim| {
        let here = sim.runtime_device()?;
        let (free_bytes, total_bytes) = sim.memory_info(here)?;
        free.set_if_wanted(free_bytes);
        total.set_if_wanted(total_bytes);
        Ok(())
    }

    /// Gives null for 0 bytes, where the driver's function fails.
    fn cudaMalloc(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| match bytes {
            0 => Ok(0),
            _ => {
                let here = sim.runtime_device()?;
                sim.malloc(here, bytes)
            }
        })
    }

    fn cudaFree(addr: u64) |sim| {
        sim.runtime_device()?;
        match addr {
            0 => Ok(()),
            _ => sim.free(addr),
        }
    }

    fn cudaPointerGetAttributes(attributes: Out<PointerAttributes>, addr: u64) |sim| {
        let on_device = sim.is_device_address(addr);
        let device = sim.settings.ordinal_of(addr).cast_signed();
        attributes.set(PointerAttributes {
            kind: if on_device { ON_DEVICE } else { UNREGISTERED },
            device: if on_device { device } else { NO_DEVICE },
            device_pointer: if on_device { addr } else { 0 },
            host_pointer: if on_device { 0 } else { addr },
        })
    }

    fn cudaHostAlloc(addr: Out<u64>, bytes: u64, _flags: u32) |sim| {
        addr.fill(|| sim.allocate_host(bytes))
    }

    fn cudaMallocHost(addr: Out<u64>, bytes: u64) |sim| { addr.fill(|| sim.allocate_host(bytes)) }
    fn cudaFreeHost(addr: u64) |sim| { sim.free_host(addr) }
    fn cudaHostRegister(_addr: u64, _bytes: u64, _flags: u32) |_| { Ok(()) }
    fn cudaHostUnregister(_addr: u64) |_| { Ok(()) }
    fn cudaHostGetDevicePointer(device: Out<u64>, host: u64, _flags: u32) |_| { device.set(host) }

    fn cudaDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) |sim| {
        pool.fill(|| sim.default_pool(sim.ordinal(device)?))
    }

    fn cudaDeviceGetMemPool(pool: Out<u64>, device: i32) |sim| {
        pool.fill(|| sim.current_pool(sim.ordinal(device)?))
    }

    fn cudaDeviceSetMemPool(device: i32, pool: u64) |sim| {
        sim.set_current_pool(sim.ordinal(device)?, pool)
    }

    fn cudaMemPoolGetAttribute(pool: u64, attribute: i32, value: Out<u8>) |sim| {
        get_attribute(sim, pool, attribute, value)
    }

    fn cudaMemPoolSetAttribute(pool: u64, attribute: i32, value: Out<u8>) |sim| {
        set_attribute(sim, pool, attribute, value)
    }

    fn cudaMemPoolSetAccess(_pool: u64, _who: u64, _count: u64) |_| { Ok(()) }
    fn cudaMemPoolTrimTo(pool: u64, keep: u64) |sim| { sim.trim_pool(pool, keep) }

    /// Gives null for 0 bytes, where the driver's function fails.
    fn cudaMallocAsync(addr: Out<u64>, bytes: u64, stream: u64) |sim| {
        addr.fill(|| match bytes {
            0 => Ok(0),
            _ => {
                let here = sim.runtime_device()?;
                sim.malloc_in_pool(here, None, bytes, stream)
            }
        })
    }

    fn cudaFreeAsync(addr: u64, stream: u64) |sim| {
        let here = sim.runtime_device()?;
        match addr {
            0 => Ok(()),
            _ => sim.free_in_pool_on(here, addr, stream),
        }
    }
}
