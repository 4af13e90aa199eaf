//! Maps memory chunk by chunk to consecutive addresses.
//!
//! Source: GMLake, `VmmSegment`. The original undoes all mappings of a range in one call.

use crate::driver::{MemoryHandle, Status, VirtualMemory};
use crate::policy::undo::{Step, Undo};

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
    /// Maps `handles`, in order, to new addresses. If the device fails, keeps nothing and undoes the
    /// steps in `made`, too.
    pub(super) fn of(
        memory: &mut dyn VirtualMemory,
        undo: &mut Undo,
        mut made: Undo,
        handles: &[MemoryHandle],
    ) -> Status<Self> {
        let bytes = CHUNK * handles.len() as u64;
        let addr = match memory.reserve(bytes) {
            Ok(addr) => addr,
            Err(error) => return Err(undo.take_back(memory, made, error)),
        };
        let range = Range { addr, bytes };
        let mut mapping = Self { range, mapped: 0 };
        match mapping.fill(memory, handles) {
            Ok(()) => Ok(mapping),
            Err(error) => {
                mapping.unmap(&mut made);
                Err(undo.take_back(memory, made, error))
            }
        }
    }

    fn fill(&mut self, memory: &mut dyn VirtualMemory, handles: &[MemoryHandle]) -> Status {
        for &handle in handles {
            let addr = self.range.addr.offset(self.mapped);
            memory.map(addr, CHUNK, handle)?;
            self.mapped += CHUNK;
            memory.set_access(addr, CHUNK)?;
        }
        Ok(())
    }

    /// Unmaps all but the first `bytes`. Can be called again after a failure.
    pub(super) fn shrink(&mut self, memory: &mut dyn VirtualMemory, bytes: u64) -> Status {
        while self.mapped > bytes {
            let last = self.mapped - CHUNK;
            memory.unmap(self.range.addr.offset(last), CHUNK)?;
            self.mapped = last;
        }
        Ok(())
    }

    /// Unmaps it and frees its addresses when `undo` runs.
    pub(super) fn unmap(self, undo: &mut Undo) {
        let Range { addr, bytes } = self.range;
        undo.push(Step::FreeAddress { addr, bytes });
        for chunk in 0..self.mapped / CHUNK {
            undo.push(Step::Unmap {
                addr: addr.offset(chunk * CHUNK),
                bytes: CHUNK,
            });
        }
    }
}
