//! Stitching: maps free ranges that are too small alone to consecutive addresses.
//!
//! Source: GMLake, `get_fused_fragmented_blocks`.

use crate::driver::{Driver, DriverError, MemoryHandle};
use crate::policy::undo::Undo;
use crate::policy::{Block, Served};

use super::mapping::Mapping;
use super::ranges::Range;
use super::stitched::Garbage;
use super::{ATTEMPTS, GmLake, Request, memory_of};

impl GmLake {
    /// Stitches free ranges of the stream into a block for the request. Returns `None` if they do not
    /// suffice, the request is too small, the device has no addresses, or `time`, the number of earlier
    /// attempts for this request, is below `defrag_level`.
    pub(super) fn stitch(
        &mut self,
        device: &mut dyn Driver,
        request: Request,
        time: u32,
    ) -> Served<Option<Block>> {
        if time < self.defrag_level || request.bytes < self.frag_limit {
            return Ok(None);
        }
        let Some(parts) = self.parts_for(request) else {
            return Ok(None);
        };
        let memory = parts.iter().flat_map(|&part| self.memory_behind(part));
        let handles: Vec<MemoryHandle> = memory.copied().collect();
        for attempt in 0..ATTEMPTS {
            let memory = memory_of(device)?;
            match Mapping::of(memory, &mut self.undo, Undo::default(), &handles) {
                Ok(mapping) => {
                    let stream = request.stream;
                    let block = self.stitched.add(&mut self.large, mapping, parts, stream);
                    self.limit_addresses(device, block)?;
                    return Ok(Some(block));
                }
                Err(DriverError::OutOfMemory) => {
                    self.collect(device, Garbage::after(attempt, request.bytes))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns the largest free ranges of the stream that add up to the request, the last one split, or
    /// `None` if they do not suffice or the stream has only one.
    fn parts_for(&self, request: Request) -> Option<Vec<Range>> {
        self.large.largest_first(request.stream).nth(1)?;
        let mut left = request.bytes;
        let mut parts = Vec::new();
        for free in self.large.largest_first(request.stream) {
            let part = free.first(left);
            left -= part.bytes;
            parts.push(part);
            if left == 0 {
                return Some(parts);
            }
        }
        None
    }

    /// Unmaps unused stitched blocks if all together exceed `auto_gc`. If the device fails, so does the
    /// request that `block` was stitched for.
    fn limit_addresses(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.stitched.bytes() <= self.auto_gc {
            return Ok(());
        }
        let collected = self.collect(device, Garbage::ALL);
        if collected.is_err() {
            self.take_back(device, block);
        }
        collected
    }

    /// Unmaps cached stitched blocks.
    pub(super) fn collect(&mut self, device: &mut dyn Driver, garbage: Garbage) -> Served {
        let (ranges, undo) = (&self.large, &mut self.undo);
        self.stitched.collect(device, ranges, undo, garbage)
    }
}
