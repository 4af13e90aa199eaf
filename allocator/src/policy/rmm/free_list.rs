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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(addr: u64, bytes: u64, is_head: bool) -> FreeBlock {
        FreeBlock {
            addr: DeviceAddr(addr),
            bytes,
            is_head,
        }
    }

    fn all(list: &CoalescingFreeList) -> Vec<FreeBlock> {
        list.check().unwrap();
        list.by_addr.values().copied().collect()
    }

    #[test]
    fn the_smallest_that_fits_is_cut_at_its_front() {
        let mut list = CoalescingFreeList::default();
        for (addr, bytes) in [(0x1000, 0x800), (0x3000, 0x400), (0x5000, 0x400)] {
            list.insert(block(addr, bytes, false));
        }
        assert_eq!(list.take(0x300), Some(DeviceAddr(0x3000)));
        assert_eq!(list.take(0x400), Some(DeviceAddr(0x5000)));
        assert_eq!(list.take(0x900), None);
        let expected = [block(0x1000, 0x800, false), block(0x3300, 0x100, false)];
        assert_eq!(all(&list), expected);
    }

    #[test]
    fn neighbours_are_joined_but_not_across_allocations() {
        let mut list = CoalescingFreeList::default();
        list.insert(block(0x1000, 0x1000, true));
        list.insert(block(0x3000, 0x1000, true));
        list.insert(block(0x2000, 0x1000, false));
        let expected = [block(0x1000, 0x2000, true), block(0x3000, 0x1000, true)];
        assert_eq!(all(&list), expected);
    }
}
