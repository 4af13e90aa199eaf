//! Requests for memory, in parts if others may use the allocator meanwhile.

use coalesce_alloc::Allocator;
#[cfg(doc)]
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::{DetachedMalloc, DeviceAddr, Driver, DriverError, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::pytorch::in_parts::{Pending, Progress};

use super::{DeviceAllocator, Policy};

/// How far a request has come.
pub enum Malloc {
    /// It was served.
    Done(DeviceAddr),
    /// It waits for the answer to a call of the device, which needs no lock.
    Waits(Pending, DetachedMalloc),
}

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        if let Some(special) = self.special_for(stream) {
            return special.malloc(bytes, stream);
        }
        let answer = self.allocator_mut().malloc(bytes, stream);
        match (answer, self.special()) {
            // A pool may have memory for requests that find none elsewhere.
            (Err(Error::OutOfMemory(error)), Some(special)) => {
                let answer = special.malloc(bytes, stream);
                answer.map_err(|_| self.of_this_device(Error::OutOfMemory(error)))
            }
            (answer, _) => answer.map_err(|error| self.of_this_device(error)),
        }
    }

    /// The first part of a raw malloc; see [`PyTorch::malloc_cached`]. Other policies have only one part,
    /// [`Self::malloc`].
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc_cached(
        &mut self,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<DeviceAddr>, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return self.malloc(bytes, stream).map(Some);
        };
        allocator.malloc_cached(bytes, stream)
    }

    /// The second part of a raw malloc; see [`PyTorch::begin_uncached`]. It stops before a call of the device only
    /// with the setting `release_lock_on_cudamalloc`.
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn begin_uncached(
        &mut self,
        bytes: u64,
        stream: StreamId,
        memory_was_freed: bool,
    ) -> Result<Malloc, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return self.malloc(bytes, stream).map(Malloc::Done);
        };
        let progress = if allocator.settings().release_lock_on_cudamalloc() {
            allocator.begin_uncached(bytes, stream, memory_was_freed)
        } else {
            allocator
                .malloc_uncached(bytes, stream, memory_was_freed)
                .map(Progress::Done)
        };
        self.go_on(progress)
    }

    /// Continues with the device's answer to the call of [`Malloc::Waits`]; see [`PyTorch::resume`].
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn resume(
        &mut self,
        pending: Pending,
        answer: Result<DeviceAddr, DriverError>,
    ) -> Result<Malloc, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return Err(DriverError::NotSupported.into());
        };
        let answer = (allocator.driver_mut()).end_malloc(pending.segment_size(), answer);
        let progress = allocator.resume(pending, answer);
        self.go_on(progress)
    }

    /// Leaves calls of the device to the caller, if the device allows it.
    fn go_on(&mut self, mut progress: Result<Progress, Error>) -> Result<Malloc, Error> {
        loop {
            let pending = match progress {
                Ok(Progress::Done(addr)) => return Ok(Malloc::Done(addr)),
                Ok(Progress::NeedsSegment(pending)) => pending,
                Err(error) => return Err(self.of_this_device(error)),
            };
            let Policy::Reference(allocator) = &mut self.policy else {
                return Err(DriverError::NotSupported.into());
            };
            let device = allocator.driver_mut();
            let answer = match device.detached_malloc(pending.segment_size()) {
                Ok(Some(call)) => return Ok(Malloc::Waits(pending, call)),
                Ok(None) => device.malloc(pending.segment_size()),
                Err(error) => Err(error),
            };
            progress = allocator.resume(pending, answer);
        }
    }
}
