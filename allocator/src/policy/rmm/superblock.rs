//! Superblocks: the regions that a stream's arena borrows from the global one and splits into blocks.
//!
//! Searches go by address: the first superblock with a large enough free block, and the first such block
//! in it. Free blocks of a superblock are merged, and so are adjacent idle superblocks of the global arena.
//!
//! Source: librmm 26.10, `mr/detail/arena.hpp`.

use std::collections::BTreeMap;

use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;
use crate::policy::Block;
use crate::policy::free_runs::{FreeRuns, Run};

/// Minimum bytes of a superblock: 1 MiB.
pub(in crate::policy) const SMALLEST: u64 = 1 << 20;

/// A region of the arena and its free blocks.
#[derive(Debug)]
pub(in crate::policy) struct Superblock {
    /// At least [`SMALLEST`].
    region: Run,
    free: FreeRuns,
}

impl Superblock {
    /// An idle superblock.
    pub(in crate::policy) fn new(addr: DeviceAddr, bytes: u64) -> Self {
        let start = addr.0;
        Self::of(Run { start, bytes })
    }

    fn of(region: Run) -> Self {
        let mut free = FreeRuns::default();
        free.give(region);
        Self { region, free }
    }

    fn is_idle(&self) -> bool {
        self.free.contains(self.region)
    }

    fn first_fit(&self, bytes: u64) -> Option<Run> {
        self.free.iter().find(|free| free.bytes >= bytes)
    }

    /// Takes `bytes` of the first free block that is large enough.
    pub(in crate::policy) fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let (taken, _) = self.first_fit(bytes)?.split_at(bytes);
        self.free.take(taken);
        Some(DeviceAddr(taken.start))
    }

    /// Shrinks an idle superblock to the request if the rest is large enough for a superblock. Returns it.
    fn split_for(&mut self, request: u64) -> Option<Self> {
        let needed = request.max(SMALLEST);
        if !self.is_idle() || self.region.bytes < needed + SMALLEST {
            return None;
        }
        let (front, rest) = self.region.split_at(needed);
        *self = Self::of(front);
        Some(Self::of(rest))
    }

    /// The superblock that two idle neighbours become.
    fn merged_with(&self, next: &Self) -> Option<Self> {
        let are_neighbours = self.region.end() == next.region.start;
        let merge = self.is_idle() && next.is_idle() && are_neighbours;
        merge.then(|| Self::of(Run::between(self.region.start, next.region.end())))
    }

    fn check(&self) -> Result<(), Violation> {
        let region = self.region;
        ensure!(region.bytes >= SMALLEST, "{region:?} is too small");
        let outside = self.free.iter().find(|free| !region.contains(*free));
        ensure!(
            outside.is_none(),
            "{outside:?} is free, but not in {region:?}"
        );
        self.free.check()
    }
}

fn run_of(block: Block) -> Run {
    let (start, bytes) = (block.addr.0, block.bytes);
    Run { start, bytes }
}

/// The superblocks of an arena, by address.
#[derive(Debug, Default)]
pub(in crate::policy) struct Superblocks(BTreeMap<u64, Superblock>);

impl Superblocks {
    /// Takes `bytes` of the first free block that is large enough.
    pub(in crate::policy) fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        self.0
            .values_mut()
            .find_map(|superblock| superblock.take(bytes))
    }

    /// Removes the first superblock with a free block of `bytes`, shrunk to the request if it is idle.
    pub(in crate::policy) fn take_superblock(&mut self, bytes: u64) -> Option<Superblock> {
        let mut superblocks = self.0.values();
        let region = superblocks
            .find(|superblock| superblock.first_fit(bytes).is_some())?
            .region;
        let mut found = self.0.remove(&region.start)?;
        if let Some(rest) = found.split_for(bytes) {
            self.insert(rest);
        }
        Some(found)
    }

    /// Inserts a superblock without merging.
    pub(in crate::policy) fn insert(&mut self, superblock: Superblock) {
        self.0.insert(superblock.region.start, superblock);
    }

    /// Inserts a superblock and merges it with idle neighbours, if it is idle.
    pub(in crate::policy) fn insert_merged(&mut self, mut superblock: Superblock) {
        let before = self.0.range(..superblock.region.start).next_back();
        if let Some(merged) = before.and_then(|(_, before)| before.merged_with(&superblock)) {
            superblock = merged;
        }
        let end = superblock.region.end();
        let after = self.0.get(&end);
        if let Some(merged) = after.and_then(|after| superblock.merged_with(after)) {
            self.0.remove(&end);
            superblock = merged;
        }
        self.insert(superblock);
    }

    /// Frees a block if it belongs to one of the superblocks. Returns whether it does.
    pub(in crate::policy) fn give_back(&mut self, block: Block) -> bool {
        let Some(superblock) = self.around(block) else {
            return false;
        };
        superblock.free.give(run_of(block));
        true
    }

    /// The same. If the superblock becomes idle, merges it with idle neighbours.
    pub(in crate::policy) fn give_back_merged(&mut self, block: Block) -> bool {
        let Some(superblock) = self.around(block) else {
            return false;
        };
        superblock.free.give(run_of(block));
        if superblock.is_idle() {
            let start = superblock.region.start;
            if let Some(idle) = self.0.remove(&start) {
                self.insert_merged(idle);
            }
        }
        true
    }

    fn around(&mut self, block: Block) -> Option<&mut Superblock> {
        let (_, superblock) = self.0.range_mut(..=block.addr.0).next_back()?;
        let is_inside = superblock.region.contains(run_of(block));
        is_inside.then_some(superblock)
    }

    /// Removes all superblocks.
    pub(in crate::policy) fn take_all(&mut self) -> impl Iterator<Item = Superblock> {
        std::mem::take(&mut self.0).into_values()
    }

    /// Bytes of all free blocks.
    pub(in crate::policy) fn free_bytes(&self) -> u64 {
        let superblocks = self.0.values();
        let free = superblocks.flat_map(|superblock| superblock.free.iter());
        free.map(|free| free.bytes).sum()
    }

    /// Bytes of all superblocks.
    pub(in crate::policy) fn bytes(&self) -> u64 {
        let superblocks = self.0.values();
        superblocks.map(|superblock| superblock.region.bytes).sum()
    }

    /// Verifies that superblocks, and the free blocks in each, do not overlap.
    pub(in crate::policy) fn check(&self) -> Result<(), Violation> {
        let mut end = 0;
        for superblock in self.0.values() {
            let region = superblock.region;
            ensure!(region.start >= end, "{region:?} overlaps the one before");
            superblock.check()?;
            end = region.end();
        }
        Ok(())
    }
}
