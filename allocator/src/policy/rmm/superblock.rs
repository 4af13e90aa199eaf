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

/// Minimum bytes of a superblock: 1 MiB.
pub(in crate::policy) const SMALLEST: u64 = 1 << 20;

/// A region of the arena and its free blocks.
#[derive(Debug)]
pub(in crate::policy) struct Superblock {
    addr: DeviceAddr,
    /// At least [`SMALLEST`].
    bytes: u64,
    /// Bytes of the free blocks by address. No two are adjacent.
    free: BTreeMap<DeviceAddr, u64>,
}

impl Superblock {
    /// An idle superblock.
    pub(in crate::policy) fn new(addr: DeviceAddr, bytes: u64) -> Self {
        Self {
            addr,
            bytes,
            free: BTreeMap::from([(addr, bytes)]),
        }
    }

    fn is_idle(&self) -> bool {
        self.free.get(&self.addr) == Some(&self.bytes)
    }

    fn end(&self) -> DeviceAddr {
        self.addr.offset(self.bytes)
    }

    fn contains(&self, block: Block) -> bool {
        self.addr <= block.addr && block.addr.offset(block.bytes) <= self.end()
    }

    fn first_fit(&self, bytes: u64) -> Option<(DeviceAddr, u64)> {
        let mut free = self.free.iter();
        free.find(|&(_, &block)| block >= bytes)
            .map(|(&addr, &block)| (addr, block))
    }

    /// Takes `bytes` of the first free block that is large enough.
    pub(in crate::policy) fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let (addr, block) = self.first_fit(bytes)?;
        self.free.remove(&addr);
        if block > bytes {
            self.free.insert(addr.offset(bytes), block - bytes);
        }
        Some(addr)
    }

    /// Frees a block.
    fn give_back(&mut self, block: Block) {
        let (mut addr, mut bytes) = (block.addr, block.bytes);
        if let Some((&before, &length)) = self.free.range(..addr).next_back()
            && before.offset(length) == addr
        {
            self.free.remove(&before);
            (addr, bytes) = (before, length + bytes);
        }
        if let Some(length) = self.free.remove(&addr.offset(bytes)) {
            bytes += length;
        }
        self.free.insert(addr, bytes);
    }

    /// Shrinks an idle superblock to the request if the rest is large enough for a superblock. Returns it.
    fn split_for(&mut self, request: u64) -> Option<Self> {
        let needed = request.max(SMALLEST);
        if !self.is_idle() || self.bytes < needed + SMALLEST {
            return None;
        }
        let rest = Self::new(self.addr.offset(needed), self.bytes - needed);
        *self = Self::new(self.addr, needed);
        Some(rest)
    }

    fn can_merge_with(&self, next: &Self) -> bool {
        self.is_idle() && next.is_idle() && self.end() == next.addr
    }

    fn check(&self) -> Result<(), Violation> {
        ensure!(
            self.bytes >= SMALLEST,
            "superblock {} is too small",
            self.addr
        );
        let mut end = None;
        for (&addr, &bytes) in &self.free {
            ensure!(
                addr >= self.addr && addr.offset(bytes) <= self.end() && bytes > 0,
                "free block {addr} is not in superblock {}",
                self.addr
            );
            ensure!(
                end.is_none_or(|end| end < addr),
                "free block {addr} overlaps the one before, or is not merged with it"
            );
            end = Some(addr.offset(bytes));
        }
        Ok(())
    }
}

/// The superblocks of an arena, by address.
#[derive(Debug, Default)]
pub(in crate::policy) struct Superblocks(BTreeMap<DeviceAddr, Superblock>);

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
        let addr = superblocks
            .find(|superblock| superblock.first_fit(bytes).is_some())?
            .addr;
        let mut found = self.0.remove(&addr)?;
        if let Some(rest) = found.split_for(bytes) {
            self.insert(rest);
        }
        Some(found)
    }

    /// Inserts a superblock without merging.
    pub(in crate::policy) fn insert(&mut self, superblock: Superblock) {
        self.0.insert(superblock.addr, superblock);
    }

    /// Inserts a superblock and merges it with idle neighbours, if it is idle.
    pub(in crate::policy) fn insert_merged(&mut self, mut superblock: Superblock) {
        let before = self.0.range(..superblock.addr).next_back();
        if let Some((&addr, before)) = before
            && before.can_merge_with(&superblock)
        {
            superblock = Superblock::new(addr, before.bytes + superblock.bytes);
        }
        let after = self.0.get(&superblock.end());
        if let Some(after) = after.filter(|after| superblock.can_merge_with(after)) {
            let bytes = superblock.bytes + after.bytes;
            self.0.remove(&superblock.end());
            superblock = Superblock::new(superblock.addr, bytes);
        }
        self.insert(superblock);
    }

    /// Frees a block if it belongs to one of the superblocks. Returns whether it does.
    pub(in crate::policy) fn give_back(&mut self, block: Block) -> bool {
        let Some(superblock) = self.around(block) else {
            return false;
        };
        superblock.give_back(block);
        true
    }

    /// The same. If the superblock becomes idle, merges it with idle neighbours.
    pub(in crate::policy) fn give_back_merged(&mut self, block: Block) -> bool {
        let Some(superblock) = self.around(block) else {
            return false;
        };
        superblock.give_back(block);
        if superblock.is_idle() {
            let addr = superblock.addr;
            if let Some(idle) = self.0.remove(&addr) {
                self.insert_merged(idle);
            }
        }
        true
    }

    fn around(&mut self, block: Block) -> Option<&mut Superblock> {
        let (_, superblock) = self.0.range_mut(..=block.addr).next_back()?;
        superblock.contains(block).then_some(superblock)
    }

    /// Removes all superblocks.
    pub(in crate::policy) fn take_all(&mut self) -> impl Iterator<Item = Superblock> {
        std::mem::take(&mut self.0).into_values()
    }

    /// Bytes of all free blocks.
    pub(in crate::policy) fn free_bytes(&self) -> u64 {
        let superblocks = self.0.values();
        superblocks
            .flat_map(|superblock| superblock.free.values())
            .sum()
    }

    /// Bytes of all superblocks.
    pub(in crate::policy) fn bytes(&self) -> u64 {
        self.0.values().map(|superblock| superblock.bytes).sum()
    }

    /// Verifies that superblocks, and the free blocks in each, do not overlap.
    pub(in crate::policy) fn check(&self) -> Result<(), Violation> {
        let mut end = DeviceAddr::NULL;
        for superblock in self.0.values() {
            ensure!(
                superblock.addr >= end,
                "superblock {} overlaps the one before",
                superblock.addr
            );
            superblock.check()?;
            end = superblock.end();
        }
        Ok(())
    }
}
