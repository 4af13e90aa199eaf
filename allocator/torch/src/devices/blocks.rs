//! Allocations and frees.

use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;

use super::Devices;
use crate::device::{DeviceAllocator, Malloc};
use crate::failure::Failure;

impl<D: Driver + 'static> Devices<D> {
    /// Allocates memory of a device. Returns null for zero bytes.
    ///
    /// # Errors
    /// If memory runs out, or as [`Self::with`].
    pub fn malloc(
        &self,
        ordinal: i32,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DeviceAddr, Failure> {
        let stack = self.stack();
        self.repeated(|| {
            self.with(ordinal, |device| {
                let addr = device.malloc(bytes, stream)?;
                if let Some(stack) = &stack {
                    device.note_malloc(addr, bytes, stream, stack);
                }
                Ok(addr)
            })
        })
    }

    /// As [`Self::malloc`], but the reference has no limit of 2^60 bytes. If no cached block fits, `collect` may
    /// first free memory of any device, without a lock, and returns whether it did. With the setting
    /// `release_lock_on_cudamalloc`, other threads may use the device's allocator while this one waits for the device.
    ///
    /// # Errors
    /// As [`Self::malloc`].
    pub fn malloc_collecting(
        &self,
        ordinal: i32,
        bytes: u64,
        stream: StreamId,
        collect: impl FnOnce() -> bool,
    ) -> Result<DeviceAddr, Failure> {
        let addr = self.malloc_in_parts(ordinal, bytes, stream, collect)?;
        if let Some(stack) = self.stack() {
            // Nobody else gets this address before the caller has it.
            self.with(ordinal, |device| {
                device.note_malloc(addr, bytes, stream, &stack);
                Ok(())
            })?;
        }
        Ok(addr)
    }

    fn malloc_in_parts(
        &self,
        ordinal: i32,
        bytes: u64,
        stream: StreamId,
        collect: impl FnOnce() -> bool,
    ) -> Result<DeviceAddr, Failure> {
        let cached = self
            .repeated(|| self.with(ordinal, |device| Ok(device.malloc_cached(bytes, stream)?)))?;
        if let Some(addr) = cached {
            return Ok(addr);
        }
        let freed = collect();
        let mut malloc = self.with(ordinal, |device| {
            Ok(device.begin_uncached(bytes, stream, freed)?)
        })?;
        loop {
            malloc = match malloc {
                Malloc::Done(addr) => return Ok(addr),
                Malloc::Waits(pending, call) => {
                    let answer = call();
                    self.with(ordinal, |device| Ok(device.resume(pending, answer)?))?
                }
            };
        }
    }

    /// Frees memory of a device.
    ///
    /// # Errors
    /// If `addr` is not the start of a live allocation of that device, or the device fails.
    pub fn free(&self, ordinal: i32, addr: DeviceAddr) -> Result<(), Failure> {
        let stack = self.stack();
        let free = |device: &mut DeviceAllocator<D>| match device.free(addr, stack.as_ref()) {
            Err(Error::InvalidPointer(_)) => Ok(false),
            freed => freed.map(|()| true).map_err(Failure::from),
        };
        let is_freed = self.repeated(|| self.with(ordinal, free))?;
        is_freed
            .then_some(())
            .ok_or_else(|| self.invalid(addr, stack.as_ref()))
    }

    /// Frees memory of any device.
    ///
    /// # Errors
    /// If `addr` is not the start of a live allocation, or the device fails.
    pub fn free_block(&self, addr: DeviceAddr) -> Result<(), Failure> {
        let stack = self.stack();
        let freed = self.repeated(|| self.owner(|_, device| device.free(addr, stack.as_ref())))?;
        freed.ok_or_else(|| self.invalid(addr, stack.as_ref()))
    }
}
