//! One block of device memory, split into regions by two-level segregated fit.
//!
//! ```text
//!  0                                                      tail            bytes
//! ├───────────┬─────────┬────────────────┬────────────────┬───────────────┤
//! │ taken     │ free    │ taken          │ taken          │ (one piece)   │
//! └───────────┴────┬────┴────────────────┴────────────────┴───────────────┘
//!                  ▼
//!          list of its size, the one freed last first
//! ```
//!
//! Free regions are kept in lists by size: 32 lists for each power of two, so that the sizes in a list
//! differ by less than 1/32. The *tail* after the last region is in no list and is used only if the lists
//! of larger sizes are empty.
//!
//! Source: `VmaBlockMetadata_TLSF`, with the default strategy; its "null block" is the tail here. All sizes
//! are multiples of 256, so alignment never wastes memory. An ordered set replaces the bitmaps that find a
//! list, with the same results.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::base::check::{Violation, ensure};

/// The largest size without its own second-level lists.
const SMALL: u64 = 256;
/// The first level begins at 2^7.
const MEMORY_CLASS_SHIFT: u32 = 7;
/// There are 2^5 second-level lists for each power of two.
const SECOND_LEVEL_INDEX: u32 = 5;

/// A list of free regions: first and second level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct List(u32, u64);

impl List {
    /// Returns the list of a free region of `bytes`.
    fn of(bytes: u64) -> Self {
        if bytes <= SMALL {
            return Self(0, (bytes - 1) / 64);
        }
        let power = bytes.ilog2();
        Self(
            power - MEMORY_CLASS_SHIFT,
            bytes >> (power - SECOND_LEVEL_INDEX),
        )
    }

    /// Returns the first list whose regions all have at least `bytes`: the one after [`List::of`].
    fn holding_at_least(bytes: u64) -> Self {
        if bytes <= SMALL {
            return Self::of(SMALL + 1);
        }
        Self::of(bytes + (1 << (bytes.ilog2() - SECOND_LEVEL_INDEX)))
    }
}

/// When a region was freed: larger is later.
type Stamp = u64;

/// A free region, in search order.
type Free = (List, Reverse<Stamp>, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    bytes: u64,
    /// `None` while it is taken.
    freed: Option<Stamp>,
}

/// The regions of a block of device memory, by their offsets in it.
#[derive(Debug, Default)]
pub(super) struct Regions {
    bytes: u64,
    /// Regions by offset, without gaps and without the tail.
    regions: BTreeMap<u64, Region>,
    /// The free regions. No two touch, and none touches the tail.
    free: BTreeSet<Free>,
    /// Bytes of the free regions.
    free_bytes: u64,
    /// Start of the tail.
    tail: u64,
    /// Number of regions freed so far.
    stamp: Stamp,
}

impl Regions {
    /// A block that is all tail.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Bytes of the block.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are not taken.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes + self.tail_bytes()
    }

    /// Whether nothing is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.tail == 0
    }

    /// Whether only the region at `offset` is taken.
    pub(super) fn is_last(&self, offset: u64) -> bool {
        let taken = |&(_, region): &(&u64, &Region)| region.freed.is_none();
        let mut taken = self.regions.iter().filter(taken);
        taken.next().is_some_and(|(&at, _)| at == offset) && taken.next().is_none()
    }

    /// Takes `bytes`, a multiple of 256. Returns their offset.
    pub(super) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.free_bytes() {
            return None;
        }
        if let Some(free) = self.first_of_larger_lists(bytes) {
            return Some(self.cut(free, bytes));
        }
        if bytes <= self.tail_bytes() {
            let offset = self.tail;
            self.tail += bytes;
            self.insert_taken(offset, bytes);
            return Some(offset);
        }
        let free = self.first_fit_of_own_list(bytes)?;
        Some(self.cut(free, bytes))
    }

    /// Frees the region at `offset`.
    pub(super) fn free(&mut self, mut offset: u64) {
        let Some(mut region) = self.regions.remove(&offset) else {
            return;
        };
        if let Some((&before, &other)) = self.regions.range(..offset).next_back()
            && self.remove_free(before, other)
        {
            offset = before;
            region.bytes += other.bytes;
        }
        let end = offset + region.bytes;
        if end == self.tail {
            self.tail = offset;
            return;
        }
        if let Some(&other) = self.regions.get(&end)
            && self.remove_free(end, other)
        {
            region.bytes += other.bytes;
        }
        self.insert_free(offset, region.bytes);
    }

    /// Verifies the invariants of the block.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let (mut end, mut free_bytes, mut free_before) = (0, 0, false);
        let mut free = BTreeSet::new();
        for (&offset, region) in &self.regions {
            ensure!(
                offset == end,
                "the region at {offset} does not begin at {end}"
            );
            end += region.bytes;
            if let Some(stamp) = region.freed {
                ensure!(!free_before, "two free regions touch at {offset}");
                free.insert((List::of(region.bytes), Reverse(stamp), offset));
                free_bytes += region.bytes;
            }
            free_before = region.freed.is_some();
        }
        ensure!(
            end == self.tail,
            "the tail begins at {}, not at {end}",
            self.tail
        );
        ensure!(!free_before, "a free region touches the tail");
        ensure!(end <= self.bytes, "more regions than the block has bytes");
        ensure!(free == self.free, "the lists do not hold the free regions");
        ensure!(free_bytes == self.free_bytes, "free bytes counted wrongly");
        Ok(())
    }

    fn tail_bytes(&self) -> u64 {
        self.bytes - self.tail
    }

    /// Returns the region freed last from the first nonempty list that holds only large enough regions.
    fn first_of_larger_lists(&self, bytes: u64) -> Option<Free> {
        let list = List::holding_at_least(bytes);
        let newest = Reverse(Stamp::MAX);
        self.free.range((list, newest, 0)..).next().copied()
    }

    /// Returns the large enough region freed last from the list of this size.
    fn first_fit_of_own_list(&self, bytes: u64) -> Option<Free> {
        let newest = Reverse(Stamp::MAX);
        let own = (List::of(bytes), newest, 0)..(List::holding_at_least(bytes), newest, 0);
        let mut own = self.free.range(own);
        own.find(|&&(_, _, offset)| self.bytes_at(offset) >= bytes)
            .copied()
    }

    /// Takes the front of a free region. The rest stays free.
    fn cut(&mut self, (_, _, offset): Free, bytes: u64) -> u64 {
        if let Some(&region) = self.regions.get(&offset)
            && self.remove_free(offset, region)
        {
            self.insert_taken(offset, bytes);
            if region.bytes > bytes {
                self.insert_free(offset + bytes, region.bytes - bytes);
            }
        }
        offset
    }

    fn bytes_at(&self, offset: u64) -> u64 {
        self.regions.get(&offset).map_or(0, |region| region.bytes)
    }

    fn insert_taken(&mut self, offset: u64, bytes: u64) {
        self.regions.insert(offset, Region { bytes, freed: None });
    }

    fn insert_free(&mut self, offset: u64, bytes: u64) {
        self.stamp += 1;
        self.free
            .insert((List::of(bytes), Reverse(self.stamp), offset));
        self.free_bytes += bytes;
        let freed = Some(self.stamp);
        self.regions.insert(offset, Region { bytes, freed });
    }

    /// Removes a region if it is free. Returns whether it was.
    fn remove_free(&mut self, offset: u64, region: Region) -> bool {
        let Some(stamp) = region.freed else {
            return false;
        };
        self.free
            .remove(&(List::of(region.bytes), Reverse(stamp), offset));
        self.free_bytes -= region.bytes;
        self.regions.remove(&offset);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_list_is_the_first_that_holds_only_large_enough_regions(
            units in 1_u64..1 << 40, permille in 950_u64..1050
        ) {
            let (bytes, other) = (units * 256, (units * permille).div_ceil(1000) * 256);
            let larger = List::holding_at_least(bytes);
            prop_assert!(List::of(bytes) < larger);
            prop_assert!(List::of(other) < larger || other >= bytes);
            prop_assert!(List::of(other) <= List::of(bytes) || List::of(other) >= larger);
            prop_assert!(List::of(other) != List::of(bytes) || other.abs_diff(bytes) < bytes / 31);
        }
    }
}
