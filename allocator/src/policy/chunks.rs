//! Regions of memory and the chunks they are split into.
//!
//! The chunks of a region cover it without gaps. Each is idle or in use as a whole, and no two idle
//! chunks are neighbours. Regions are never merged, even if they touch: each is returned to the device by
//! itself.

use std::collections::BTreeMap;

use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;

/// The owner of a chunk, for a policy that distinguishes chunks.
pub(super) trait Owner: Copy + Eq {
    /// The owner of the chunk that results from merging two idle neighbours. `self` is the lower one.
    fn merged_with(self, other: Self) -> Self;
}

/// A part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk<O> {
    pub(super) bytes: u64,
    pub(super) in_use: bool,
    pub(super) owner: O,
}

/// All regions and their chunks, by address.
#[derive(Clone, Debug)]
pub(super) struct Chunks<O> {
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
    /// Adds a region as one chunk.
    pub(super) fn add_region(&mut self, addr: DeviceAddr, chunk: Chunk<O>) {
        self.regions.insert(addr, chunk.bytes);
        self.chunks.insert(addr, chunk);
    }

    /// Removes a region with all its chunks.
    pub(super) fn remove_region(&mut self, addr: DeviceAddr) {
        let bytes = self.regions.remove(&addr).unwrap_or(0);
        let chunks = self.chunks.range(addr..addr.offset(bytes));
        let chunks: Vec<DeviceAddr> = chunks.map(|(&addr, _)| addr).collect();
        for addr in chunks {
            self.chunks.remove(&addr);
        }
    }

    /// Returns the regions without a chunk in use, in address order, with their bytes.
    pub(super) fn idle_regions(&self) -> Vec<(DeviceAddr, u64)> {
        let idle = |&(addr, bytes): &(DeviceAddr, u64)| {
            let chunk = self.chunks.get(&addr);
            chunk.is_some_and(|chunk| !chunk.in_use && chunk.bytes == bytes)
        };
        let regions = self.regions.iter().map(|(&addr, &bytes)| (addr, bytes));
        regions.filter(idle).collect()
    }

    pub(super) fn has_regions(&self) -> bool {
        !self.regions.is_empty()
    }

    pub(super) fn get(&self, addr: DeviceAddr) -> Option<&Chunk<O>> {
        self.chunks.get(&addr)
    }

    pub(super) fn get_mut(&mut self, addr: DeviceAddr) -> Option<&mut Chunk<O>> {
        self.chunks.get_mut(&addr)
    }

    /// Returns the chunk after the one at `addr` in its region.
    pub(super) fn next(&self, addr: DeviceAddr) -> Option<(DeviceAddr, &Chunk<O>)> {
        let end = addr.offset(self.chunks.get(&addr)?.bytes);
        if self.regions.contains_key(&end) {
            return None;
        }
        self.chunks.get(&end).map(|chunk| (end, chunk))
    }

    /// Returns the chunk before the one at `addr` in its region.
    pub(super) fn prev(&self, addr: DeviceAddr) -> Option<(DeviceAddr, &Chunk<O>)> {
        if self.regions.contains_key(&addr) {
            return None;
        }
        let (&before, chunk) = self.chunks.range(..addr).next_back()?;
        Some((before, chunk))
    }

    /// Splits off the first `front` bytes of the chunk at `addr`, which must be larger. Both parts keep its owner,
    /// and both are in use if it was. Returns the start of the rest.
    pub(super) fn cut(&mut self, addr: DeviceAddr, front: u64) -> DeviceAddr {
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

    /// Merges the idle chunk at `addr` with its idle neighbours, first with the one after it. Calls
    /// `unlist` with each neighbour before it is merged. Returns the start of the merged chunk.
    pub(super) fn coalesce(
        &mut self,
        addr: DeviceAddr,
        mut unlist: impl FnMut(DeviceAddr, &Chunk<O>),
    ) -> DeviceAddr {
        if let Some((next, chunk)) = self.next(addr).filter(|(_, chunk)| !chunk.in_use) {
            unlist(next, chunk);
            self.merge(addr, next);
        }
        if let Some((prev, chunk)) = self.prev(addr).filter(|(_, chunk)| !chunk.in_use) {
            unlist(prev, chunk);
            self.merge(prev, addr);
            return prev;
        }
        addr
    }

    /// Merges two neighbours.
    fn merge(&mut self, front: DeviceAddr, back: DeviceAddr) {
        if let Some(gone) = self.chunks.remove(&back)
            && let Some(kept) = self.chunks.get_mut(&front)
        {
            kept.bytes += gone.bytes;
            kept.owner = kept.owner.merged_with(gone.owner);
        }
    }

    /// The bytes of all regions.
    pub(super) fn bytes(&self) -> u64 {
        self.regions.values().sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (DeviceAddr, &Chunk<O>)> {
        self.chunks.iter().map(|(&addr, chunk)| (addr, chunk))
    }

    /// Verifies that chunks of whole units of so many bytes cover the regions and nothing else, and that no two
    /// idle chunks are neighbours.
    ///
    /// # Errors
    /// The first broken invariant.
    pub(super) fn check(&self, unit: u64) -> Result<(), Violation> {
        let mut covered = 0;
        for (&start, &bytes) in &self.regions {
            let (mut at, end) = (start, start.offset(bytes));
            let mut idle_before = false;
            while at < end {
                let chunk = self.chunks.get(&at);
                ensure!(chunk.is_some(), "no chunk begins at {at}");
                let Some(chunk) = chunk else { break };
                ensure!(
                    chunk.bytes > 0 && chunk.bytes.is_multiple_of(unit),
                    "the chunk at {at} has {} bytes",
                    chunk.bytes
                );
                let merged = chunk.in_use || !idle_before;
                ensure!(merged, "the idle chunk at {at} has an idle one before it");
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
