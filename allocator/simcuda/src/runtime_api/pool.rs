//! Stream-ordered pools.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::driver_api::{get_attribute, set_attribute};

entry_points! { runtime:
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

    fn cudaMemPoolSetAccess(_pool: u64, _who: u64, _count: u64) |_| {
        Ok(())
    }

    fn cudaMemPoolTrimTo(pool: u64, keep: u64) |sim| {
        sim.trim_pool(pool, keep)
    }

    /// Nothing at null for 0 bytes, unlike the driver's.
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
