//! How other processes open the memory of a block.
//!
//! A segment from the device is opened as a whole, an expandable segment by the pages that contain the block.
//!
//! Source: PyTorch 2.11, `DeviceCachingAllocator::shareIpcHandle` and `ExpandableSegment::share`.

use super::PyTorch;
use crate::driver::{DeviceAddr, Driver, DriverError, HandleKind, SharedPage};
use crate::error::Error;

/// What another process opens to use a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shareable {
    /// A segment.
    Segment {
        /// Where it starts.
        start: DeviceAddr,
    },
    /// Consecutive pages of mapped memory.
    Pages {
        /// Where the first one starts.
        start: DeviceAddr,
        /// Their memory, in the order of their addresses.
        pages: Vec<SharedPage>,
    },
}

impl<D: Driver> PyTorch<D> {
    /// Returns what another process opens to use a live allocation (`shareIpcHandle`).
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation; [`Error::VirtualMemory`] if the
    /// device cannot share its memory.
    pub fn share(&mut self, addr: DeviceAddr) -> Result<Shareable, Error> {
        let block = &self.blocks[self.live_block(addr)?];
        let Some(segment) = block.segment else {
            let (start, _) = self.base_allocation(addr)?;
            return Ok(Shareable::Segment { start });
        };
        let segment = &self.expandable_segments[segment];
        // Memory that is mapped has decided it.
        let kind = self.handle_kind.unwrap_or(HandleKind::FileDescriptor);
        let vm = self
            .driver
            .virtual_memory()
            .ok_or(Error::VirtualMemory(DriverError::NotSupported))?;
        let (start, pages) = segment
            .export(vm, kind, block.addr, block.size)
            .map_err(Error::VirtualMemory)?;
        Ok(Shareable::Pages { start, pages })
    }
}
