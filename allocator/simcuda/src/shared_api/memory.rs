//! Memory on devices and on the host, and stream-ordered pools.

use crate::border::{Out, shared_entry_points};
use crate::errors::Outcome;
use crate::pools::Attribute;
use crate::state::Sim;

shared_entry_points! {
    fn cuMemGetInfo_v2, cudaMemGetInfo(free: Out<u64>, total: Out<u64>) |sim, api| {
        let here = api.device(sim)?;
        let (free_bytes, total_bytes) = sim.memory_info(here)?;
        free.set_if_wanted(free_bytes);
        total.set_if_wanted(total_bytes);
        Ok(())
    }

    fn cuMemFree_v2, cudaFree(addr: u64) |sim, api| {
        api.device(sim)?;
        match addr {
            0 => Ok(()),
            _ => sim.free(addr),
        }
    }

    fn cuMemHostAlloc, cudaHostAlloc(addr: Out<u64>, bytes: u64, _flags: u32) |sim, _| {
        addr.fill(|| sim.allocate_host(bytes))
    }

    fn cuMemAllocHost_v2, cudaMallocHost(addr: Out<u64>, bytes: u64) |sim, _| {
        addr.fill(|| sim.allocate_host(bytes))
    }

    fn cuMemFreeHost, cudaFreeHost(addr: u64) |sim, _| { sim.free_host(addr) }

    fn cuMemHostRegister_v2, cudaHostRegister(addr: u64, bytes: u64, _flags: u32) |sim, _| {
        sim.register_host(addr, bytes)
    }

    fn cuMemHostUnregister, cudaHostUnregister(addr: u64) |sim, _| { sim.unregister_host(addr) }

    fn cuMemHostGetDevicePointer_v2, cudaHostGetDevicePointer(
        device: Out<u64>,
        host: u64,
        _flags: u32,
    ) |_, _| {
        device.set(host)
    }
}

/// Writes an attribute as its type, `int` or `cuuint64_t`.
fn get_attribute(sim: &mut Sim, pool: u64, number: i32, to: Out<u8>) -> Outcome {
    match sim.pool_attribute(pool, number)? {
        Attribute::Flag(flag) => to.cast().set(flag),
        Attribute::Bytes(bytes) => to.cast().set(bytes),
    }
}

/// Sets an attribute from a value of its type.
fn set_attribute(sim: &mut Sim, pool: u64, number: i32, from: Out<u8>) -> Outcome {
    let value = match sim.pool_attribute(pool, number)? {
        Attribute::Flag(_) => Attribute::Flag(from.argument().get()?),
        Attribute::Bytes(_) => Attribute::Bytes(from.argument().get()?),
    };
    sim.set_pool_attribute(pool, number, value)
}

shared_entry_points! {
    fn cuDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool(
        pool: Out<u64>,
        device: i32,
    ) |sim, _| {
        pool.fill(|| sim.default_pool(sim.ordinal(device)?))
    }

    fn cuDeviceGetMemPool, cudaDeviceGetMemPool(pool: Out<u64>, device: i32) |sim, _| {
        pool.fill(|| sim.current_pool(sim.ordinal(device)?))
    }

    fn cuDeviceSetMemPool, cudaDeviceSetMemPool(device: i32, pool: u64) |sim, _| {
        sim.set_current_pool(sim.ordinal(device)?, pool)
    }

    fn cuMemPoolTrimTo, cudaMemPoolTrimTo(pool: u64, keep: u64) |sim, _| {
        sim.trim_pool(pool, keep)
    }

    fn cuMemPoolGetAttribute, cudaMemPoolGetAttribute(
        pool: u64,
        attribute: i32,
        value: Out<u8>,
    ) |sim, _| {
        get_attribute(sim, pool, attribute, value)
    }

    fn cuMemPoolSetAttribute, cudaMemPoolSetAttribute(
        pool: u64,
        attribute: i32,
        value: Out<u8>,
    ) |sim, _| {
        set_attribute(sim, pool, attribute, value)
    }

    /// Devices access only their own memory.
    fn cuMemPoolSetAccess, cudaMemPoolSetAccess(_pool: u64, _who: u64, _count: u64) |_, _| {
        Ok(())
    }
}
