//! Segments of the large pool: physical memory in chunks, mapped to a range of addresses.
//!
//! Source: GMLake, `realloc_block`, `release_block`.

use crate::driver::{Driver, HandleKind, MemoryHandle, Status, VirtualMemory};
use crate::policy::undo::{Step, Undo};
use crate::policy::{Refusal, Served};

use super::mapping::{CHUNK, Mapping};
use super::ranges::Range;
use super::stitched::Garbage;
use super::{ATTEMPTS, GmLake, Request, memory_of};

/// Bytes of a segment for a request below [`PACKED_LIMIT`]. Larger requests get segments of their size.
const PACKED_SEGMENT: u64 = 20 << 20;
const PACKED_LIMIT: u64 = 10 << 20;

#[derive(Debug)]
pub(super) struct Segment {
    mapping: Mapping,
    /// The mapped memory, chunk by chunk.
    handles: Vec<MemoryHandle>,
}

impl Segment {
    /// Returns it to the device when `undo` runs: the mapping, the addresses, then the memory.
    fn give_back(self, undo: &mut Undo) {
        for handle in self.handles {
            undo.push(release(handle));
        }
        self.mapping.unmap(undo);
    }
}

/// The step that returns a chunk of memory.
fn release(handle: MemoryHandle) -> Step {
    Step::Release {
        handle,
        bytes: CHUNK,
    }
}

impl GmLake {
    /// Takes a segment for a large request, if the device has memory and addresses for it.
    pub(super) fn new_segment(
        &mut self,
        device: &mut dyn Driver,
        request: Request,
    ) -> Served<Option<Range>> {
        let bytes = segment_bytes(request.bytes);
        if bytes > device.total_memory() {
            return Ok(None);
        }
        for attempt in 0..ATTEMPTS {
            match self.create_segment(device, bytes) {
                Ok(segment) => {
                    let range = segment.mapping.range;
                    self.segments.insert(range.addr, segment);
                    self.large.add_segment(range, request.stream);
                    return Ok(Some(range));
                }
                Err(Refusal::OutOfMemory) => {}
                Err(refusal) => return Err(refusal),
            }
            // With memory to spare, the device is out of addresses.
            let memory_is_short = device.memory_info()?.free <= bytes;
            if memory_is_short || self.stitched.cached_bytes(request.stream) < bytes {
                break;
            }
            self.collect(device, Garbage::after(attempt, bytes))?;
        }
        Ok(None)
    }

    fn create_segment(&mut self, device: &mut dyn Driver, bytes: u64) -> Served<Segment> {
        let memory = memory_of(device)?;
        let mut made = Undo::default();
        let mut handles = Vec::new();
        for _ in 0..bytes / CHUNK {
            match memory.create(CHUNK, HandleKind::FileDescriptor) {
                Ok(handle) => {
                    made.push(release(handle));
                    handles.push(handle);
                }
                Err(error) => return Err(self.undo.take_back(memory, made, error).into()),
            }
        }
        let mapping = Mapping::of(memory, &mut self.undo, made, &handles)?;
        Ok(Segment { mapping, handles })
    }

    /// Returns the memory mapped to a range of a segment.
    pub(super) fn memory_behind(&self, range: Range) -> &[MemoryHandle] {
        let segment = self.segments.range(..=range.addr).next_back();
        let chunks = segment.and_then(|(&start, segment)| {
            let first = usize::try_from(range.addr.offset_from(start) / CHUNK).ok()?;
            let count = usize::try_from(range.bytes / CHUNK).ok()?;
            segment.handles.get(first..)?.get(..count)
        });
        chunks.unwrap_or_default()
    }

    /// Returns all segments that are entirely free to the device.
    pub(super) fn release_segments(&mut self, memory: &mut dyn VirtualMemory) -> Status {
        self.undo.run(memory)?;
        for range in self.large.whole_segments() {
            self.stitched.forget(memory, &mut self.undo, range)?;
            self.large.remove_segment(range);
            if let Some(segment) = self.segments.remove(&range.addr) {
                segment.give_back(&mut self.undo);
            }
            self.undo.run(memory)?;
        }
        Ok(())
    }
}

/// Returns the bytes of a segment for a large request.
fn segment_bytes(request: u64) -> u64 {
    if request < PACKED_LIMIT {
        PACKED_SEGMENT
    } else {
        request
    }
}
