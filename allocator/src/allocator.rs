//! The contract every policy meets.

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::snapshot::SegmentInfo;
use crate::stats::DeviceStats;

/// An allocator of device memory. Used by several threads it needs a lock, which is the caller's.
///
/// A policy must provide `malloc`, `free`, `record_stream` and `empty_cache` such that
/// 1. live allocations never share a byte;
/// 2. memory that a stream was recorded on is not handed out again before that stream is done;
/// 3. after every allocation was freed, all streams are done and the cache was emptied, every byte
///    is back with the device;
/// 4. the same calls on devices that answer the same give the same results;
/// 5. a call that fails changes nothing but what its error says, and the allocator goes on.
pub trait Allocator: Send {
    /// The device it takes memory from.
    type Driver: Driver;

    /// At least `bytes` of memory for use on `stream`; null for zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is none left; otherwise what the device or the policy reports.
    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error>;

    /// Takes back what [`Allocator::malloc`] returned. Null is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] for anything else.
    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error>;

    /// Says that `stream`, too, works on this allocation: once freed, it stays out of use until
    /// that stream has done all the work it has then. Null is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not live.
    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error>;

    /// Returns to the device all memory that can be returned.
    ///
    /// # Errors
    /// What the device reports.
    fn empty_cache(&mut self) -> Result<(), Error>;

    /// What it counts. A policy leaves at zero what it does not have.
    fn stats(&self) -> &DeviceStats;

    /// Sets every peak of what it counts to its current value.
    fn reset_peak_stats(&mut self);

    /// All memory it holds.
    fn segments(&self) -> Vec<SegmentInfo>;

    /// Verifies every invariant of its own state, at a cost that grows with that state.
    ///
    /// # Errors
    /// The first one found broken.
    fn check(&self) -> Result<(), Violation>;

    /// The device.
    fn driver(&self) -> &Self::Driver;

    /// The device, to let time pass on it.
    fn driver_mut(&mut self) -> &mut Self::Driver;
}

/// A request of this many bytes or more is refused outright, whatever the policy: 2^60. So PyTorch does,
/// as nobody means them.
pub const ONE_EXABYTE: u64 = 1 << 60;

impl<A: Allocator + ?Sized> Allocator for Box<A> {
    type Driver = A::Driver;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        (**self).malloc(bytes, stream)
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        (**self).free(addr)
    }

    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        (**self).record_stream(addr, stream)
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        (**self).empty_cache()
    }

    fn stats(&self) -> &DeviceStats {
        (**self).stats()
    }

    fn reset_peak_stats(&mut self) {
        (**self).reset_peak_stats();
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        (**self).segments()
    }

    fn check(&self) -> Result<(), Violation> {
        (**self).check()
    }

    fn driver(&self) -> &A::Driver {
        (**self).driver()
    }

    fn driver_mut(&mut self) -> &mut A::Driver {
        (**self).driver_mut()
    }
}
