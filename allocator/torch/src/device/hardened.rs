//! The mode `harden` on one device.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;

use super::{DeviceAllocator, Limited, Policy};
use crate::hardened::{Hardened, Stack};

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Turns the mode on, before the first request.
    pub fn harden(&mut self, poisons: bool) {
        self.hardened = Some(Hardened::new(poisons));
    }

    /// What the mode knows, and the allocator, if the mode is on.
    pub(super) fn hardened(
        &mut self,
    ) -> Option<(&mut Hardened, &mut dyn Allocator<Driver = Limited<D>>)> {
        let hardened = self.hardened.as_mut()?;
        match &mut self.policy {
            Policy::Reference(allocator) => Some((hardened, &mut **allocator)),
            Policy::Other { allocator, .. } => Some((hardened, &mut **allocator)),
        }
    }

    /// Notes who made a request that was served.
    pub fn note_malloc(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId, stack: &Stack) {
        if let Some((hardened, allocator)) = self.hardened() {
            hardened.note_malloc(allocator, (addr, bytes), stream, stack);
        }
    }

    /// Records that a stream uses an allocation.
    ///
    /// # Errors
    /// As [`Allocator::record_stream`].
    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator_mut().record_stream(addr, stream)?;
        if let Some(hardened) = &mut self.hardened {
            hardened.note_stream(addr);
        }
        Ok(())
    }

    /// Checks that freed memory was not written, and prints where it was.
    pub fn check_freed(&mut self) {
        if let Some((hardened, allocator)) = self.hardened() {
            hardened.check_all(allocator);
        }
    }

    /// What the mode knows about an address that is not the start of an allocation.
    #[must_use]
    pub fn explain(&self, addr: DeviceAddr, used: &Stack) -> Option<String> {
        self.hardened.as_ref()?.explain(addr, used)
    }

    /// Returns cached memory to the device.
    ///
    /// # Errors
    /// As [`Allocator::empty_cache`].
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.check_freed();
        self.allocator_mut().empty_cache()
    }
}
