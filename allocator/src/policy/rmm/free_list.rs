//! The free memory of a pool that is safe to use on one stream: best fit, coalesced on insertion.
//!
//! A request gets the smallest block that is large enough, the lowest address among equals. The rest of
//! the block stays in the list. RMM walks a list sorted by address; an index by size finds the same block.
//!
//! Source: librmm 26.10, `mr/detail/coalescing_free_list.hpp`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::stream_ordered::FreeList;
use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;

/// A contiguous range of free memory of one device allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policy) struct FreeBlock {
    pub(in crate::policy) addr: DeviceAddr,
    /// More than 0. Not always a multiple of 256, because a pool halves its growth until the device can
    /// serve it.
    pub(in crate::policy) bytes: u64,
    /// Whether it is at the start of a device allocation. Adjacent allocations are returned separately,
    /// so it is not merged with a block before it.
    pub(in crate::policy) is_head: bool,
}

impl FreeBlock {
    /// Returns the rest after a request of `bytes`.
    pub(in crate::policy) fn rest_after(self, bytes: u64) -> Option<Self> {
        (self.bytes > bytes).then(|| Self {
            addr: self.addr.offset(bytes),
            bytes: self.bytes - bytes,
            is_head: false,
        })
    }

    fn is_adjacent_to(self, next: Self) -> bool {
        self.addr.offset(self.bytes) == next.addr && !next.is_head
    }

    fn merged_with(self, next: Self) -> Self {
        Self {
            bytes: self.bytes + next.bytes,
            ..self
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(in crate::policy) struct CoalescingFreeList {
    by_addr: BTreeMap<DeviceAddr, FreeBlock>,
    /// The same blocks by size.
    by_size: BTreeSet<(u64, DeviceAddr)>,
}

impl CoalescingFreeList {
    fn best_fit(&self, bytes: u64) -> Option<DeviceAddr> {
        let mut large_enough = self.by_size.range((bytes, DeviceAddr::NULL)..);
        large_enough.next().map(|&(_, addr)| addr)
    }

    fn remove(&mut self, addr: DeviceAddr) -> Option<FreeBlock> {
        let block = self.by_addr.remove(&addr)?;
        self.by_size.remove(&(block.bytes, addr));
        Some(block)
    }

    fn before(&self, addr: DeviceAddr) -> Option<FreeBlock> {
        self.by_addr.range(..addr).next_back().map(|(_, &b)| b)
    }

    fn after(&self, addr: DeviceAddr) -> Option<FreeBlock> {
        self.by_addr.range(addr..).next().map(|(_, &b)| b)
    }

    /// Returns the blocks that begin in a range of addresses.
    pub(in crate::policy) fn inside(
        &self,
        range: Range<DeviceAddr>,
    ) -> impl Iterator<Item = FreeBlock> {
        self.by_addr.range(range).map(|(_, &block)| block)
    }

    /// Removes the blocks that begin in a range of addresses.
    pub(in crate::policy) fn remove_inside(&mut self, range: &Range<DeviceAddr>) {
        while let Some(block) = self.after(range.start).filter(|b| b.addr < range.end) {
            self.remove(block.addr);
        }
    }

    /// Verifies that both indexes hold the same blocks and that all adjacent blocks are merged.
    pub(in crate::policy) fn check(&self) -> Result<(), Violation> {
        ensure!(
            self.by_size.len() == self.by_addr.len(),
            "a free list of {} blocks has {} by size",
            self.by_addr.len(),
            self.by_size.len()
        );
        for (&addr, &block) in &self.by_addr {
            ensure!(
                block.addr == addr && self.by_size.contains(&(block.bytes, addr)),
                "free block {addr} is missing in an index"
            );
            if let Some(before) = self.before(addr) {
                ensure!(
                    before.addr.offset(before.bytes) <= addr,
                    "free block {addr} overlaps the one before"
                );
                ensure!(
                    !before.is_adjacent_to(block),
                    "free block {addr} is not merged with the one before"
                );
            }
        }
        Ok(())
    }
}

impl FreeList for CoalescingFreeList {
    type Block = FreeBlock;

    fn can_serve(&self, bytes: u64) -> bool {
        self.best_fit(bytes).is_some()
    }

    fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let block = self.remove(self.best_fit(bytes)?)?;
        if let Some(rest) = block.rest_after(bytes) {
            self.insert(rest);
        }
        Some(block.addr)
    }

    fn insert(&mut self, mut block: FreeBlock) {
        if let Some(before) = self.before(block.addr).filter(|b| b.is_adjacent_to(block)) {
            self.remove(before.addr);
            block = before.merged_with(block);
        }
        if let Some(after) = self
            .after(block.addr)
            .filter(|&after| block.is_adjacent_to(after))
        {
            self.remove(after.addr);
            block = block.merged_with(after);
        }
        self.by_size.insert((block.bytes, block.addr));
        self.by_addr.insert(block.addr, block);
    }

    fn absorb(&mut self, other: Self) {
        other
            .by_addr
            .into_values()
            .for_each(|block| self.insert(block));
    }
}
