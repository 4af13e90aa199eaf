//! The contents at each address.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::MemoryHandle;
use coalesce_alloc::driver::calls::Call;
use foldhash::fast::FixedState;

use super::extents::{Content, Extent, Extents};

/// Physical memory, mapped to one address or several.
type Physical = Arc<Mutex<Extents>>;

/// Addresses with memory.
#[derive(Debug)]
struct Range {
    bytes: u64,
    memory: Physical,
}

/// A part of a [`Range`].
struct Part {
    memory: Physical,
    /// Offset in the memory, in bytes.
    offset: u64,
    bytes: u64,
}

impl Part {
    fn extents(&self) -> MutexGuard<'_, Extents> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All memory of all devices.
#[derive(Debug, Default)]
pub(super) struct Memory {
    ranges: BTreeMap<u64, Range>,
    /// Live handles; each device has its own numbers.
    handles: HashMap<(u32, MemoryHandle), Physical, FixedState>,
}

impl Memory {
    /// Applies a call made on a device.
    pub(super) fn follow(&mut self, ordinal: u32, call: &Call) {
        match *call {
            Call::Malloc { bytes, addr } => {
                let bytes = bytes.next_multiple_of(GRANULARITY);
                let memory = Physical::default();
                self.ranges.insert(addr.0, Range { bytes, memory });
            }
            Call::Free { addr, .. } | Call::Unmap { addr, .. } => {
                self.ranges.remove(&addr.0);
            }
            Call::Create { handle, .. } => {
                self.handles.insert((ordinal, handle), Physical::default());
            }
            Call::Release { handle } => {
                self.handles.remove(&(ordinal, handle));
            }
            Call::Map {
                addr,
                bytes,
                handle,
            } => {
                if let Some(memory) = self.handles.get(&(ordinal, handle)).cloned() {
                    self.ranges.insert(addr.0, Range { bytes, memory });
                }
            }
            _ => {}
        }
    }

    /// The memory of `bytes` from `addr` on; `None` if any part is missing.
    fn parts(&self, addr: u64, bytes: u64) -> Option<Vec<Part>> {
        let end = addr.checked_add(bytes)?;
        let first = self
            .ranges
            .range(..=addr)
            .next_back()
            .map_or(addr, |(&start, _)| start);
        let mut reached = addr;
        let mut parts = Vec::new();
        for (&start, range) in self.ranges.range(first..end) {
            let stop = end.min(start + range.bytes);
            if start > reached || stop <= reached {
                break;
            }
            parts.push(Part {
                memory: Arc::clone(&range.memory),
                offset: reached - start,
                bytes: stop - reached,
            });
            reached = stop;
        }
        (reached == end).then_some(parts)
    }

    pub(super) fn covers(&self, addr: u64, bytes: u64) -> bool {
        self.parts(addr, bytes).is_some()
    }

    /// The contents of `bytes` from `addr` on.
    pub(super) fn extents(&self, addr: u64, bytes: u64) -> Option<Vec<Extent>> {
        let parts = self.parts(addr, bytes)?;
        let read = |part: &Part| part.extents().read(part.offset, part.bytes);
        Some(parts.iter().flat_map(read).collect())
    }

    pub(super) fn read(&self, addr: u64, bytes: u64) -> Option<Vec<u8>> {
        let extents = self.extents(addr, bytes)?;
        let bytes = |extent: Extent| (0..extent.bytes).map(move |at| extent.content.byte(at));
        Some(extents.into_iter().flat_map(bytes).collect())
    }

    /// Writes consecutive extents, if all of their memory exists.
    pub(super) fn write(&mut self, addr: u64, extents: &[Extent]) -> Option<()> {
        let bytes = extents.iter().map(|extent| extent.bytes).sum();
        let parts = self.parts(addr, bytes)?;
        // The same bytes, to be split at the boundaries of the memory.
        let mut written = Extents::default();
        let mut at = 0;
        for extent in extents {
            written.write(at, extent.clone());
            at += extent.bytes;
        }
        let mut done = 0;
        for part in parts {
            let mut at = part.offset;
            let mut memory = part.extents();
            for extent in written.read(done, part.bytes) {
                let bytes = extent.bytes;
                memory.write(at, extent);
                at += bytes;
            }
            done += part.bytes;
        }
        Some(())
    }

    pub(super) fn fill(&mut self, addr: u64, bytes: u64, content: Content) -> Option<()> {
        self.write(addr, &[Extent { bytes, content }])
    }
}
