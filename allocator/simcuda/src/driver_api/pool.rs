//! Stream-ordered pools.
#![expect(unsafe_code, reason = "functions that C calls")]

use super::virtual_memory::Location;
use crate::border::{In, Out, entry_points};
use crate::context;
use crate::errors::{Code, Outcome};
use crate::pools::Attribute;
use crate::state::Sim;

/// The beginning of `CUmemPoolProps`: what is after it limits and shares pools.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolProperties {
    pub kind: i32,
    pub handle_types: i32,
    pub location: Location,
}

/// Writes an attribute in the type it has: an `int` or a `cuuint64_t`.
pub(crate) fn get_attribute(sim: &mut Sim, pool: u64, number: i32, to: Out<u8>) -> Outcome {
    match sim.pool_attribute(pool, number)? {
        Attribute::Flag(flag) => to.cast().set(flag),
        Attribute::Bytes(bytes) => to.cast().set(bytes),
    }
}

/// Sets an attribute from a place of the type it has.
pub(crate) fn set_attribute(sim: &mut Sim, pool: u64, number: i32, from: Out<u8>) -> Outcome {
    let value = match sim.pool_attribute(pool, number)? {
        Attribute::Flag(_) => Attribute::Flag(from.argument().get()?),
        Attribute::Bytes(_) => Attribute::Bytes(from.argument().get()?),
    };
    sim.set_pool_attribute(pool, number, value)
}

entry_points! { driver:
    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) |sim| {
        pool.fill(|| sim.default_pool(sim.ordinal(device)?))
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) |sim| {
        pool.fill(|| sim.current_pool(sim.ordinal(device)?))
    }

    fn cuDeviceSetMemPool(device: i32, pool: u64) |sim| {
        sim.set_current_pool(sim.ordinal(device)?, pool)
    }

    fn cuMemPoolCreate(pool: Out<u64>, what: In<PoolProperties>) |sim| {
        pool.fill(|| {
            let ordinal = what.get()?.location.device(sim)?;
            sim.create_pool(ordinal)
        })
    }

    fn cuMemPoolDestroy(pool: u64) |sim| {
        sim.destroy_pool(pool)
    }

    fn cuMemPoolTrimTo(pool: u64, keep: u64) |sim| {
        sim.trim_pool(pool, keep)
    }

    fn cuMemPoolGetAttribute(pool: u64, attribute: i32, value: Out<u8>) |sim| {
        get_attribute(sim, pool, attribute, value)
    }

    fn cuMemPoolSetAttribute(pool: u64, attribute: i32, value: Out<u8>) |sim| {
        set_attribute(sim, pool, attribute, value)
    }

    /// Every device sees its own memory, and no other's.
    fn cuMemPoolSetAccess(_pool: u64, _who: u64, _count: u64) |_| {
        Ok(())
    }

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
