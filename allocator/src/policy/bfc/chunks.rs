//! Regions of memory and the chunks they are cut into.
//!
//! The chunks of a region lie one behind the other and cover it. Each is idle or in use as a whole,
//! and idle neighbours are one chunk. Regions never grow together, even where they touch: each goes
//! back to the device by itself.
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.{h,cc}`: `AllocationRegion`, `Chunk`,
//! `SplitChunk`, `TryToCoalesce`, `MergeChunks`, `DeallocateFreeRegions`.

use std::collections::BTreeMap;

use crate::check::{Violation, ensure};
use crate::driver::DeviceAddr;

/// Bytes that all chunks are multiples of, and aligned to (`kMinAllocationSize`).
pub(in crate::policy) const GRANULE: u64 = 256;

/// What a request for `bytes` takes of a chunk: whole granules.
pub(in crate::policy) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
}

/// Whose a chunk is, for a policy that tells chunks apart.
pub(in crate::policy) trait Owner: Copy + Eq {
    /// Whose the whole is when two idle neighbours are joined.
    fn joined_with(self, other: Self) -> Self;
}

/// Everybody's.
impl Owner for () {
    fn joined_with(self, (): Self) {}
}

/// A part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policy) struct Chunk<O> {
    /// A multiple of [`GRANULE`] above 0.
    pub(in crate::policy) bytes: u64,
    pub(in crate::policy) in_use: bool,
    pub(in crate::policy) owner: O,
}

/// All regions and their chunks, by address.
#[derive(Debug)]
pub(in crate::policy) struct Chunks<O> {
    /// Start → bytes.
    regions: BTreeMap<DeviceAddr, u64>,
    chunks: BTreeMap<DeviceAddr, Chunk<O>>,
}

impl<O> Default for Chunks<O> {
    fn default() -> Self {
        Self {
            regions: BTreeMap::new(),
            chunks: BTreeMap::new(),
        }
    }
}

impl<O: Owner> Chunks<O> {
    /// Adds a region, one idle chunk.
    pub(in crate::policy) fn add_region(&mut self, addr: DeviceAddr, bytes: u64, owner: O) {
        self.regions.insert(addr, bytes);
        let chunk = Chunk {
            bytes,
            in_use: false,
            owner,
        };
        self.chunks.insert(addr, chunk);
    }

    /// Forgets an idle region, which is one chunk.
    pub(in crate::policy) fn remove_region(&mut self, addr: DeviceAddr) {
        self.regions.remove(&addr);
        self.chunks.remove(&addr);
    }

    /// The regions no part of which is in use, from low to high addresses, with their bytes.
    pub(in crate::policy) fn idle_regions(&self) -> Vec<(DeviceAddr, u64)> {
        let idle = |&(addr, bytes): &(DeviceAddr, u64)| {
            let chunk = self.chunks.get(&addr);
            chunk.is_some_and(|chunk| !chunk.in_use && chunk.bytes == bytes)
        };
        let regions = self.regions.iter().map(|(&addr, &bytes)| (addr, bytes));
        regions.filter(idle).collect()
    }

    pub(in crate::policy) fn has_regions(&self) -> bool {
        !self.regions.is_empty()
    }

    pub(in crate::policy) fn get(&self, addr: DeviceAddr) -> Option<&Chunk<O>> {
        self.chunks.get(&addr)
    }

    pub(in crate::policy) fn get_mut(&mut self, addr: DeviceAddr) -> Option<&mut Chunk<O>> {
        self.chunks.get_mut(&addr)
    }

    /// The chunk behind the one at `addr` in its region.
    pub(in crate::policy) fn next(&self, addr: DeviceAddr) -> Option<(DeviceAddr, &Chunk<O>)> {
        let end = addr.offset(self.chunks.get(&addr)?.bytes);
        if self.regions.contains_key(&end) {
            return None;
        }
        self.chunks.get(&end).map(|chunk| (end, chunk))
    }

    /// The chunk before the one at `addr` in its region.
    pub(in crate::policy) fn prev(&self, addr: DeviceAddr) -> Option<(DeviceAddr, &Chunk<O>)> {
        if self.regions.contains_key(&addr) {
            return None;
        }
        let (&before, chunk) = self.chunks.range(..addr).next_back()?;
        Some((before, chunk))
    }

    /// Cuts the idle chunk at `addr` in two of the same owner, `front` bytes and the rest, neither
    /// of them empty. Returns where the rest begins.
    pub(in crate::policy) fn cut(&mut self, addr: DeviceAddr, front: u64) -> DeviceAddr {
        let back = addr.offset(front);
        if let Some(chunk) = self.chunks.get_mut(&addr) {
            let rest = Chunk {
                bytes: chunk.bytes - front,
                ..*chunk
            };
            chunk.bytes = front;
            self.chunks.insert(back, rest);
        }
        back
    }

    /// Joins the idle chunk at `addr` with its idle neighbours, the one behind it first; `unlist` is
    /// told each of them as it was. Returns where the whole begins.
    pub(in crate::policy) fn coalesce(
        &mut self,
        addr: DeviceAddr,
        mut unlist: impl FnMut(DeviceAddr, &Chunk<O>),
    ) -> DeviceAddr {
        if let Some((next, chunk)) = self.next(addr).filter(|(_, chunk)| !chunk.in_use) {
            unlist(next, chunk);
            self.join(addr, next);
        }
        if let Some((prev, chunk)) = self.prev(addr).filter(|(_, chunk)| !chunk.in_use) {
            unlist(prev, chunk);
            self.join(prev, addr);
            return prev;
        }
        addr
    }

    /// Makes one chunk of two neighbours.
    fn join(&mut self, front: DeviceAddr, back: DeviceAddr) {
        if let Some(gone) = self.chunks.remove(&back)
            && let Some(kept) = self.chunks.get_mut(&front)
        {
            kept.bytes += gone.bytes;
            kept.owner = kept.owner.joined_with(gone.owner);
        }
    }

    pub(in crate::policy) fn iter(&self) -> impl Iterator<Item = (DeviceAddr, &Chunk<O>)> {
        self.chunks.iter().map(|(&addr, chunk)| (addr, chunk))
    }

    /// Verifies that chunks of whole granules cover each region, and nothing else, and that no two
    /// idle ones are neighbours.
    ///
    /// # Errors
    /// The first of these that does not hold.
    pub(in crate::policy) fn check(&self) -> Result<(), Violation> {
        let mut covered = 0;
        for (&start, &bytes) in &self.regions {
            let (mut at, end) = (start, start.offset(bytes));
            let mut idle_before = false;
            while at < end {
                let chunk = self.chunks.get(&at);
                ensure!(chunk.is_some(), "no chunk begins at {at}");
                let Some(chunk) = chunk else { break };
                ensure!(
                    chunk.bytes > 0 && chunk.bytes.is_multiple_of(GRANULE),
                    "the chunk at {at} has {} bytes",
                    chunk.bytes
                );
                let joined = chunk.in_use || !idle_before;
                ensure!(joined, "the idle chunk at {at} has an idle one before it");
                idle_before = !chunk.in_use;
                at = at.offset(chunk.bytes);
                covered += 1;
            }
            ensure!(at == end, "a chunk crosses {end}, the end of its region");
        }
        let outside = self.chunks.len() - covered;
        ensure!(outside == 0, "{outside} chunks in no region");
        Ok(())
    }
}
