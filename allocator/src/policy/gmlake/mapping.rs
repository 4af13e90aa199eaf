//! Maps memory chunk by chunk, and undoes mappings on a device that may fail.
//!
//! Source: GMLake, `VmmSegment`. The original undoes all mappings of a range in one call.

use crate::driver::{DeviceAddr, DriverError, HandleKind, MemoryHandle, VirtualMemory};

use super::ranges::Range;

/// Bytes of a handle: the granularity of device memory and of the large pool.
pub(super) const CHUNK: u64 = 2 << 20;

/// A reserved address range with memory mapped to it.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) range: Range,
    /// Bytes mapped from the start on: all of them, except while the mapping is made or undone.
    mapped: u64,
}

impl Mapping {
    fn fill(
        &mut self,
        memory: &mut dyn VirtualMemory,
        handles: &[MemoryHandle],
    ) -> Result<(), DriverError> {
        for &handle in handles {
            let addr = self.range.addr.offset(self.mapped);
            memory.map(addr, CHUNK, handle)?;
            self.mapped += CHUNK;
            memory.set_access(addr, CHUNK)?;
        }
        Ok(())
    }

    /// Unmaps all but the first `bytes`. Can be called again after a failure.
    pub(super) fn shrink(
        &mut self,
        memory: &mut dyn VirtualMemory,
        bytes: u64,
    ) -> Result<(), DriverError> {
        while self.mapped > bytes {
            let last = self.mapped - CHUNK;
            memory.unmap(self.range.addr.offset(last), CHUNK)?;
            self.mapped = last;
        }
        Ok(())
    }

    fn undo(&mut self, memory: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        self.shrink(memory, 0)?;
        memory.free_address(self.range.addr, self.range.bytes)
    }
}

/// Mappings and memory to be returned to the device. What a failing device does not take back stays here
/// and is tried again the next time.
#[derive(Debug, Default)]
pub(super) struct Returns {
    mappings: Vec<Mapping>,
    handles: Vec<MemoryHandle>,
}

impl Returns {
    pub(super) fn push(&mut self, mapping: Mapping) {
        self.mappings.push(mapping);
    }

    pub(super) fn push_memory(&mut self, handles: Vec<MemoryHandle>) {
        self.handles.extend(handles);
    }

    /// Returns everything: mappings, addresses, then memory.
    pub(super) fn settle(&mut self, memory: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        while let Some(mapping) = self.mappings.last_mut() {
            mapping.undo(memory)?;
            self.mappings.pop();
        }
        while let Some(&handle) = self.handles.last() {
            memory.release(handle, CHUNK)?;
            self.handles.pop();
        }
        Ok(())
    }

    /// Creates this many chunks of memory. Keeps none if the device fails.
    pub(super) fn create(
        &mut self,
        memory: &mut dyn VirtualMemory,
        chunks: u64,
    ) -> Result<Vec<MemoryHandle>, DriverError> {
        let mut handles = Vec::new();
        for _ in 0..chunks {
            match memory.create(CHUNK, HandleKind::FileDescriptor) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    self.push_memory(handles);
                    return Err(self.settle_after(memory, error));
                }
            }
        }
        Ok(handles)
    }

    /// Maps `handles`, in order, to new addresses. Keeps nothing if the device fails.
    pub(super) fn map(
        &mut self,
        memory: &mut dyn VirtualMemory,
        handles: &[MemoryHandle],
    ) -> Result<Mapping, DriverError> {
        let bytes = CHUNK * handles.len() as u64;
        let addr: DeviceAddr = memory.reserve(bytes)?;
        let range = Range { addr, bytes };
        let mut mapping = Mapping { range, mapped: 0 };
        match mapping.fill(memory, handles) {
            Ok(()) => Ok(mapping),
            Err(error) => {
                self.push(mapping);
                Err(self.settle_after(memory, error))
            }
        }
    }

    /// Settles after `error` and returns it. What cannot be settled is kept for later.
    pub(super) fn settle_after(
        &mut self,
        memory: &mut dyn VirtualMemory,
        error: DriverError,
    ) -> DriverError {
        let _kept_for_later = self.settle(memory);
        error
    }
}
