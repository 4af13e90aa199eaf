//! The interface of every allocator.

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::mempool::PoolCall;
use crate::private_pools::HasPrivatePools;
use crate::snapshot::SegmentInfo;
use crate::stats::DeviceStats;

/// Requests of 2^60 bytes or more are refused by every allocator, as PyTorch refuses them.
pub const ONE_EXABYTE: u64 = 1 << 60;

/// An allocator of device memory. To share it between threads, put it behind a lock.
///
/// Implementations guarantee:
/// 1. Live allocations never overlap.
/// 2. Memory used by a recorded stream is not reused before that stream has finished its work.
/// 3. Once every allocation is freed, all streams have finished and the cache is emptied, the device has
///    all its memory back.
/// 4. The same calls on devices that give the same answers produce the same results.
/// 5. A failed call changes nothing beyond what its error states, and the allocator remains usable.
pub trait Allocator: Send {
    /// The device that memory comes from.
    type Driver: Driver;

    /// Allocates at least `bytes` bytes for use on `stream`. Returns null for zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if memory is exhausted; otherwise the error of the device or the policy.
    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error>;

    /// Frees an allocation. Null is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error>;

    /// Records that `stream` also uses this allocation. Once freed, its memory is not reused until that
    /// stream has finished the work queued on it at that time. Null is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error>;

    /// Returns all cached memory to the device, as far as possible.
    ///
    /// # Errors
    /// The error of the device.
    fn empty_cache(&mut self) -> Result<(), Error>;

    /// The private pools, if this allocator has them. By default it has none.
    fn private_pools(&mut self) -> Option<&mut dyn HasPrivatePools> {
        None
    }

    /// Makes a call about private pools. An allocator without them serves all requests from the pool that it has, and
    /// ignores such calls.
    ///
    /// # Errors
    /// If the call contradicts the calls before it.
    fn pool_call(&mut self, call: PoolCall) -> Result<(), Error> {
        match self.private_pools() {
            Some(pools) => call.make(pools),
            None => Ok(()),
        }
    }

    /// Limits reserved memory to so many bytes from here on, or removes the limit. Memory reserved beyond it is kept. Returns
    /// whether this allocator has such a limit. One without it ignores the call, and its caller may limit the device: this is
    /// the default.
    fn set_memory_limit(&mut self, _bytes: Option<u64>) -> bool {
        false
    }

    /// The statistics. Figures that do not apply to a policy stay zero.
    fn stats(&self) -> &DeviceStats;

    /// Sets every peak to its current value.
    fn reset_peak_stats(&mut self);

    /// Sets every total and every counter to zero.
    fn reset_accumulated_stats(&mut self);

    /// All segments reserved from the device, with their blocks.
    fn segments(&self) -> Vec<SegmentInfo>;

    /// Verifies every invariant of the allocator's state. The cost grows with that state.
    ///
    /// # Errors
    /// The first broken invariant.
    fn check(&self) -> Result<(), Violation>;

    /// The device.
    fn driver(&self) -> &Self::Driver;

    /// The device, for example to advance its clock.
    fn driver_mut(&mut self) -> &mut Self::Driver;
}

/// Implements the named methods of [`Allocator`] by calling the same method on another value, as in
/// `delegate!(self, self.allocator; free, reports)`. `reports` stands for all methods after
/// `set_memory_limit`.
macro_rules! delegate {
    ($self:ident, $to:expr; $($method:ident),+) => {
        $($crate::allocator::delegate!(@$method $self, $to);)+
    };
    (@malloc $self:ident, $to:expr) => {
        fn malloc(&mut $self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
            $to.malloc(bytes, stream)
        }
    };
    (@free $self:ident, $to:expr) => {
        fn free(&mut $self, addr: DeviceAddr) -> Result<(), Error> {
            $to.free(addr)
        }
    };
    (@record_stream $self:ident, $to:expr) => {
        fn record_stream(&mut $self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
            $to.record_stream(addr, stream)
        }
    };
    (@empty_cache $self:ident, $to:expr) => {
        fn empty_cache(&mut $self) -> Result<(), Error> {
            $to.empty_cache()
        }
    };
    (@private_pools $self:ident, $to:expr) => {
        fn private_pools(&mut $self) -> Option<&mut dyn $crate::private_pools::HasPrivatePools> {
            $to.private_pools()
        }
    };
    (@set_memory_limit $self:ident, $to:expr) => {
        fn set_memory_limit(&mut $self, bytes: Option<u64>) -> bool {
            $to.set_memory_limit(bytes)
        }
    };
    (@reports $self:ident, $to:expr) => {
        fn stats(&$self) -> &$crate::stats::DeviceStats {
            $to.stats()
        }

        fn reset_peak_stats(&mut $self) {
            $to.reset_peak_stats();
        }

        fn reset_accumulated_stats(&mut $self) {
            $to.reset_accumulated_stats();
        }

        fn segments(&$self) -> Vec<$crate::snapshot::SegmentInfo> {
            $to.segments()
        }

        fn check(&$self) -> Result<(), $crate::base::check::Violation> {
            $to.check()
        }

        fn driver(&$self) -> &Self::Driver {
            $to.driver()
        }

        fn driver_mut(&mut $self) -> &mut Self::Driver {
            $to.driver_mut()
        }
    };
}
pub(crate) use delegate;

impl<A: Allocator + ?Sized> Allocator for Box<A> {
    type Driver = A::Driver;

    delegate!(self, (**self); malloc, free, record_stream, empty_cache, private_pools, set_memory_limit, reports);
}
