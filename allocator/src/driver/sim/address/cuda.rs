//! Addresses as NVIDIA's driver chooses them.
//!
//! The rules were found by experiment (driver 580.159.04, an H200 and an H100, Linux on x86-64). The test
//! `addresses` of this crate compares them with recorded sequences of calls, address by address.
//!
//! - Every range lies in a chunk, whose size is a multiple of 32 MiB. The newest chunk that has a large enough gap
//!   takes the range. An allocation goes to the start of the smallest such gap of the chunk, and of equally small
//!   gaps to the lowest. A reservation goes to the start of the lowest such gap.
//! - If no chunk has such a gap, an allocation gets a new chunk, at the end of the highest free addresses that
//!   have room for the chunk and 32 MiB more. (The driver maps 32 MiB more to align the chunk, and unmaps the rest.)
//! - A reservation that needs a chunk gets it at the lowest free addresses that are large enough.
//! - A chunk is given back with the last range in it.
//! - A new context leaves two gaps in its own chunk, the oldest. It is never given back.

use std::collections::BTreeMap;

use super::join_gap;
use crate::driver::{DriverError, Status};

const MIB: u64 = 1 << 20;
/// Chunks start and end at multiples of it, in bytes. Also what must be free beside a new chunk.
pub const CHUNK_UNIT: u64 = 32 * MIB;
/// The bytes of a new context's own chunk.
const CONTEXT_BYTES: u64 = 512 * MIB;
/// The gaps that a new context leaves in it: offset and bytes.
const CONTEXT_GAPS: [(u64, u64); 2] = [(414 * MIB, 2 * MIB), (488 * MIB, 24 * MIB)];
/// Where the chunks of reservations begin, from the first address of the device.
const LOWEST: u64 = 0x3_0200_0000;
/// Addresses have so many bits. Those of a further device have higher ones, too, so that no two devices share an address.
const ADDRESS_BITS: u32 = 48;
/// Used by the driver itself: start and end.
const DRIVERS_OWN: (u64, u64) = (0x100_0000_0000, 0x100_0400_0000);
/// No chunk ends above it.
const HIGHEST: u64 = 1 << 62;

/// The chunks of one process.
#[derive(Debug)]
pub(super) struct Chunks {
    /// By start. They do not overlap.
    chunks: BTreeMap<u64, Chunk>,
    /// The starts of all chunks, the oldest first.
    by_age: Vec<u64>,
    /// New chunks of allocations end at or below it.
    top: u64,
    /// The lowest address of a reservation.
    lowest: u64,
}

#[derive(Debug)]
struct Chunk {
    end: u64,
    /// Gaps: start → bytes. No two are adjacent.
    gaps: BTreeMap<u64, u64>,
    /// Ranges in use, and one more in the context's own chunk.
    ranges: usize,
}

impl Chunks {
    /// The addresses of a new context. Its own chunk starts at `base`, rounded up to a multiple of 32 MiB.
    pub(super) fn new(base: u64) -> Self {
        let latest = (HIGHEST - CONTEXT_BYTES) / CHUNK_UNIT * CHUNK_UNIT;
        let base = base.min(latest).next_multiple_of(CHUNK_UNIT);
        let gap = |(offset, bytes)| (base + offset, bytes);
        let context = Chunk {
            end: base + CONTEXT_BYTES,
            gaps: CONTEXT_GAPS.map(gap).into(),
            ranges: 1,
        };
        Self {
            chunks: BTreeMap::from([(base, context)]),
            by_age: vec![base],
            top: base,
            lowest: (base >> ADDRESS_BITS << ADDRESS_BITS) + LOWEST,
        }
    }

    /// Addresses of which `held` are in use, ascending: start and bytes. Which other addresses are free is
    /// not known, so nothing is placed above them. Later chunks are usually lower, so the lower ones count as
    /// newer.
    pub(super) fn around(held: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut chunks: BTreeMap<u64, Chunk> = BTreeMap::new();
        for (start, bytes) in held {
            let end = start + bytes;
            let (first, last) = (
                start / CHUNK_UNIT * CHUNK_UNIT,
                end.next_multiple_of(CHUNK_UNIT),
            );
            let mut chunk = match chunks.pop_last() {
                Some((first, before)) if before.end > start => (first, before),
                before => {
                    chunks.extend(before);
                    (first, Chunk::vacant(first, first))
                }
            };
            chunk.1.extend_to(last);
            chunk.1.take(start, bytes);
            chunks.extend([chunk]);
        }
        let top = chunks.last_key_value().map_or(HIGHEST, |(_, c)| c.end);
        Self {
            by_age: chunks.keys().rev().copied().collect(),
            chunks,
            top,
            lowest: LOWEST,
        }
    }

    /// Places an allocation of `bytes`.
    pub(super) fn place(&mut self, bytes: u64) -> Status<u64> {
        let find = |chunks: &Self, size| chunks.highest(size).or_else(|| chunks.lowest(size));
        self.place_by(bytes, Chunk::smallest_gap, find)
    }

    /// Places a reservation of `bytes`.
    pub(super) fn reserve(&mut self, bytes: u64) -> Status<u64> {
        self.place_by(bytes, Chunk::lowest_gap, Self::lowest)
    }

    /// Places a range in the gap that `gap` returns for a chunk, or in a new chunk at the address that `find`
    /// returns for the chunk's bytes.
    fn place_by(
        &mut self,
        bytes: u64,
        gap: impl Fn(&Chunk, u64) -> Option<u64>,
        find: impl Fn(&Self, u64) -> Option<u64>,
    ) -> Status<u64> {
        if let Some(start) = self.place_in_gap(bytes, gap) {
            return Ok(start);
        }
        let size = bytes.checked_next_multiple_of(CHUNK_UNIT);
        let found = size.and_then(|size| Some((find(self, size)?, size)));
        let (start, size) = found.ok_or(DriverError::OutOfMemory)?;
        let mut chunk = Chunk::vacant(start, start + size);
        chunk.take(start, bytes);
        self.chunks.insert(start, chunk);
        self.by_age.push(start);
        Ok(start)
    }

    /// Frees a range.
    pub(super) fn free(&mut self, start: u64, bytes: u64) {
        let Some((&first, chunk)) = self.chunks.range_mut(..=start).next_back() else {
            return;
        };
        chunk.give(start, bytes);
        if chunk.ranges == 0 {
            self.chunks.remove(&first);
            self.by_age.retain(|&other| other != first);
        }
    }

    fn place_in_gap(
        &mut self,
        bytes: u64,
        gap: impl Fn(&Chunk, u64) -> Option<u64>,
    ) -> Option<u64> {
        let newest_first = self.by_age.iter().rev();
        let (chunk, start) = newest_first
            .filter_map(|first| Some((first, gap(&self.chunks[first], bytes)?)))
            .next()?;
        self.chunks.get_mut(chunk)?.take(start, bytes);
        Some(start)
    }

    /// Where a chunk of `size` bytes ends the highest free addresses below the top that are large enough.
    fn highest(&self, size: u64) -> Option<u64> {
        let needed = size.checked_add(CHUNK_UNIT)?;
        let mut end = self.top;
        for (&start, chunk) in self.chunks.range(..self.top).rev() {
            if end.saturating_sub(chunk.end) >= needed {
                break;
            }
            end = start;
        }
        end.checked_sub(needed).map(|start| start + CHUNK_UNIT)
    }

    /// The start of the lowest free addresses that have room for `size` bytes.
    fn lowest(&self, size: u64) -> Option<u64> {
        let used = self.chunks.iter().map(|(&start, chunk)| (start, chunk.end));
        let below = used.clone().take_while(|&(start, _)| start < DRIVERS_OWN.0);
        let above = used.skip_while(|&(start, _)| start < DRIVERS_OWN.0);
        let mut start = self.lowest;
        for (next, end) in below.chain([DRIVERS_OWN]).chain(above) {
            if next.saturating_sub(start) >= size {
                return Some(start);
            }
            start = start.max(end);
        }
        let end = start.checked_add(size)?;
        (end <= HIGHEST).then_some(start)
    }
}

impl Chunk {
    fn vacant(start: u64, end: u64) -> Self {
        Self {
            end,
            gaps: BTreeMap::from([(start, end - start)]),
            ranges: 0,
        }
    }

    /// The start of the smallest gap that has room, the lowest of equal ones.
    fn smallest_gap(&self, bytes: u64) -> Option<u64> {
        let fitting = self.gaps.iter().filter(|&(_, &length)| length >= bytes);
        fitting
            .min_by_key(|&(_, &length)| length)
            .map(|(&start, _)| start)
    }

    /// The start of the lowest gap that has room.
    fn lowest_gap(&self, bytes: u64) -> Option<u64> {
        let mut gaps = self.gaps.iter();
        gaps.find(|&(_, &length)| length >= bytes)
            .map(|(&start, _)| start)
    }

    /// Uses `bytes` from `start`, which lie in one gap.
    fn take(&mut self, start: u64, bytes: u64) {
        self.ranges += 1;
        let Some((&from, &length)) = self.gaps.range(..=start).next_back() else {
            return;
        };
        self.gaps.remove(&from);
        let end = start + bytes;
        let parts = [(from, start - from), (end, from + length - end)];
        self.gaps
            .extend(parts.into_iter().filter(|&(_, length)| length > 0));
    }

    /// Frees `bytes` from `start`.
    fn give(&mut self, start: u64, bytes: u64) {
        self.ranges -= 1;
        join_gap(&mut self.gaps, start, bytes);
    }

    fn extend_to(&mut self, end: u64) {
        if end > self.end {
            join_gap(&mut self.gaps, self.end, end - self.end);
            self.end = end;
        }
    }
}
