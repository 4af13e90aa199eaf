//! The free blocks of one stream in one pool, in search order.
//!
//! The order is by size, then [rank](super::tie_break).
//! Blocks are found by the [class](super::size_class) of their size: most classes have one block or none, and
//! a map of the classes in use leads to the next one. A class with several blocks keeps them in an
//! [`OrderedSet`]. The block that came last stays outside, because it is often the next to go.

use std::cmp::Ordering;

use super::BlockId;
use super::block::{Block, Blocks};
use super::ordered::{self, OrderedSet};
use super::size_class::{ClassMap, class_of};

/// A free block in search order.
#[derive(Clone, Copy, Debug)]
struct FreeBlock {
    size: u64,
    rank: u64,
    id: BlockId,
}

impl Ord for FreeBlock {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for FreeBlock {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FreeBlock {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for FreeBlock {}

/// A filler of unused places.
impl Default for FreeBlock {
    fn default() -> Self {
        Self::first_of(0)
    }
}

impl FreeBlock {
    #[inline]
    fn new(id: BlockId, block: &Block) -> Self {
        Self {
            size: block.size,
            rank: block.rank,
            id,
        }
    }

    /// Size and rank in one number, which compares faster than two.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.size) << 64 | u128::from(self.rank)
    }

    /// A lower bound of all blocks of at least `size` bytes.
    fn first_of(size: u64) -> Self {
        Self {
            size,
            rank: 0,
            id: BlockId::FIRST,
        }
    }
}

/// The blocks of a class.
#[derive(Clone, Copy, Debug)]
enum Class {
    One(BlockId),
    /// The index of a set of any size; it stays until its last block is removed.
    Several(u32),
}

/// The position of a block in [`FreeBlocks`], valid until they change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The block.
    pub(super) id: BlockId,
    place: Place,
}

/// A place in [`FreeBlocks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Latest,
    /// The only block of a class.
    One {
        class: u32,
    },
    /// One of several blocks of a class.
    Several {
        class: u32,
        at: ordered::Cursor,
    },
}

/// Free blocks in search order.
///
/// Invariant: a block's size and rank do not change while it is in the set.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    /// The block that was inserted last, if it is still present. It is not in the index.
    latest: Option<BlockId>,
    index: Index,
}

/// The free blocks by class.
#[derive(Debug, Default)]
struct Index {
    classes: ClassMap<Class>,
    sets: Vec<OrderedSet<FreeBlock>>,
    /// Empty sets.
    spare: Vec<u32>,
}

impl FreeBlocks {
    /// Inserts a block that is not present.
    #[inline(always)]
    pub(super) fn insert(&mut self, blocks: Blocks<'_>, id: BlockId) {
        if let Some(previous) = self.latest.replace(id) {
            self.index.insert(blocks, previous);
        }
    }

    /// Removes a block. Returns whether it was present.
    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: Blocks<'_>, id: BlockId) -> bool {
        if self.latest == Some(id) {
            self.latest = None;
            return true;
        }
        self.index.remove(blocks, id)
    }

    /// Removes the block at a cursor.
    #[inline(always)]
    pub(super) fn remove_at(&mut self, cursor: Cursor) {
        match cursor.place {
            Place::Latest => self.latest = None,
            Place::One { class } => self.index.classes.remove(class as usize),
            Place::Several { class, at } => self.index.remove_from_set(class as usize, at),
        }
    }

    /// The first block of at least `size` bytes.
    #[inline(always)]
    pub(super) fn best_fit(&self, blocks: Blocks<'_>, size: u64) -> Option<Cursor> {
        let indexed = self.index.best_fit(blocks, size);
        let Some(latest) = self.latest.filter(|&latest| blocks[latest].size >= size) else {
            return indexed;
        };
        let precedes =
            |id| FreeBlock::new(id, &blocks[id]) < FreeBlock::new(latest, &blocks[latest]);
        indexed.filter(|at| precedes(at.id)).or(Some(Cursor {
            id: latest,
            place: Place::Latest,
        }))
    }

    /// Puts the latest block into the index, so that [`Self::after`] finds it.
    pub(super) fn settle(&mut self, blocks: Blocks<'_>) {
        if let Some(latest) = self.latest.take() {
            self.index.insert(blocks, latest);
        }
    }

    /// The block after a cursor. The latest block must be [settled](Self::settle).
    pub(super) fn after(&self, cursor: Cursor) -> Option<Cursor> {
        match cursor.place {
            Place::Latest => None,
            Place::One { class } => self.index.first_from(class as usize + 1),
            Place::Several { class, at } => self.index.after(class, at),
        }
    }

    /// All blocks in order.
    pub(super) fn iter(&self, blocks: Blocks<'_>) -> impl Iterator<Item = BlockId> {
        let entry = move |id: BlockId| FreeBlock::new(id, &blocks[id]);
        let mut latest = self.latest.map(entry);
        let mut indexed = self.index.iter().peekable();
        std::iter::from_fn(move || {
            let next = indexed.peek().copied().map(entry);
            let first = latest.filter(|latest| next.is_none_or(|next| *latest < next));
            if first.is_some() {
                latest = None;
                return first.map(|first| first.id);
            }
            indexed.next()
        })
    }

    /// The blocks of less than `size` bytes, last first.
    pub(super) fn below(&self, blocks: Blocks<'_>, size: u64) -> Vec<BlockId> {
        let smaller = |&id: &BlockId| blocks[id].size < size;
        let mut below: Vec<BlockId> = self.iter(blocks).take_while(smaller).collect();
        below.reverse();
        below
    }
}

impl Index {
    #[inline]
    fn insert(&mut self, blocks: Blocks<'_>, id: BlockId) {
        let class = class_of(blocks[id].size);
        match self.classes.get(class) {
            None => self.classes.set(class, Class::One(id)),
            Some(others) => self.insert_beside(blocks, id, class, others),
        }
    }

    fn insert_beside(&mut self, blocks: Blocks<'_>, id: BlockId, class: usize, others: Class) {
        let set = match others {
            Class::Several(set) => set,
            Class::One(other) => {
                let set = self.spare.pop().unwrap_or_else(|| {
                    self.sets.push(OrderedSet::default());
                    self.sets.len() as u32 - 1
                });
                self.classes.set(class, Class::Several(set));
                self.sets[set as usize].insert(FreeBlock::new(other, &blocks[other]));
                set
            }
        };
        self.sets[set as usize].insert(FreeBlock::new(id, &blocks[id]));
    }

    #[inline]
    fn remove(&mut self, blocks: Blocks<'_>, id: BlockId) -> bool {
        let class = class_of(blocks[id].size);
        match self.classes.get(class) {
            Some(Class::One(one)) if one == id => {
                self.classes.remove(class);
                true
            }
            Some(Class::Several(set)) => {
                let entry = FreeBlock::new(id, &blocks[id]);
                let found = self.sets[set as usize].remove(&entry);
                self.remove_class_if_empty(class, set);
                found
            }
            _ => false,
        }
    }

    fn remove_from_set(&mut self, class: usize, at: ordered::Cursor) {
        if let Some(Class::Several(set)) = self.classes.get(class) {
            self.sets[set as usize].remove_at(at);
            self.remove_class_if_empty(class, set);
        }
    }

    fn remove_class_if_empty(&mut self, class: usize, set: u32) {
        if self.sets[set as usize].is_empty() {
            self.spare.push(set);
            self.classes.remove(class);
        }
    }

    #[inline(always)]
    fn best_fit(&self, blocks: Blocks<'_>, size: u64) -> Option<Cursor> {
        let wanted = class_of(size);
        let (class, found) = self.classes.at_or_after(wanted)?;
        if class > wanted {
            return self.first_in(class, found);
        }
        let here = match found {
            Class::One(id) => Some(Cursor::of_one(id, class)).filter(|_| blocks[id].size >= size),
            Class::Several(set) => {
                let at = self.sets[set as usize].lower_bound(&FreeBlock::first_of(size));
                at.map(|at| self.in_set(class, set, at))
            }
        };
        here.or_else(|| self.first_from(class + 1))
    }

    fn after(&self, class: u32, at: ordered::Cursor) -> Option<Cursor> {
        let class = class as usize;
        let here = match self.classes.get(class) {
            Some(Class::Several(set)) => {
                let next = self.sets[set as usize].after(at);
                next.map(|at| self.in_set(class, set, at))
            }
            _ => None,
        };
        here.or_else(|| self.first_from(class + 1))
    }

    fn iter(&self) -> impl Iterator<Item = BlockId> {
        let next = |&(class, _): &(usize, Class)| self.classes.at_or_after(class + 1);
        let classes = std::iter::successors(self.classes.at_or_after(0), next);
        classes.flat_map(|(_, class)| {
            let (one, set) = match class {
                Class::One(id) => (Some(id), None),
                Class::Several(set) => (None, Some(&self.sets[set as usize])),
            };
            let several = set
                .into_iter()
                .flat_map(|set| set.iter().map(|free| free.id));
            one.into_iter().chain(several)
        })
    }

    #[inline]
    fn first_from(&self, class: usize) -> Option<Cursor> {
        let (class, found) = self.classes.at_or_after(class)?;
        self.first_in(class, found)
    }

    #[inline]
    fn first_in(&self, class: usize, found: Class) -> Option<Cursor> {
        match found {
            Class::One(id) => Some(Cursor::of_one(id, class)),
            Class::Several(set) => {
                let at = self.sets[set as usize].first();
                at.map(|at| self.in_set(class, set, at))
            }
        }
    }

    #[inline]
    fn in_set(&self, class: usize, set: u32, at: ordered::Cursor) -> Cursor {
        let id = self.sets[set as usize].get(at).id;
        let class = class as u32;
        Cursor {
            id,
            place: Place::Several { class, at },
        }
    }
}

impl Cursor {
    #[inline]
    fn of_one(id: BlockId, class: usize) -> Self {
        let class = class as u32;
        Self {
            id,
            place: Place::One { class },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::driver::DeviceAddr;
    use crate::pytorch::arena::Arena;
    use crate::pytorch::size::MIN_BLOCK;

    /// Sizes in units, of few classes and of many.
    fn sizes() -> impl Strategy<Value = Vec<u64>> {
        let units = prop_oneof![1_u64..8, 500_u64..530, 4_000_u64..4_040, 1_u64..1 << 30];
        prop::collection::vec(units, 1..300)
    }

    #[test]
    fn no_block_serves_a_request_that_no_device_has_memory_for() {
        let mut blocks = Arena::default();
        let mut set = FreeBlocks::default();
        for tib in [4, 5, 6] {
            let id = blocks.insert(Block::of_size(DeviceAddr::NULL, tib << 40));
            set.insert(blocks.slots(), id);
        }
        set.settle(blocks.slots());
        for size in [7 << 40, 1 << 63, (1 << 63) + MIN_BLOCK, u64::MAX - 511] {
            assert_eq!(set.best_fit(blocks.slots(), size), None, "{size}");
        }
    }

    proptest! {
        /// Compares with a sorted set of the same entries.
        #[test]
        fn behaves_as_a_sorted_set(
            made in sizes(),
            ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..600),
        ) {
            let mut blocks = Arena::default();
            let ids: Vec<BlockId> = (0_u64..).zip(&made).map(|(number, &units)| {
                let mut block = Block::of_size(DeviceAddr::NULL, units * MIN_BLOCK);
                block.rank = (number * 7919) % 1024;
                blocks.insert(block)
            }).collect();
            let mut set = FreeBlocks::default();
            let mut model = BTreeSet::new();
            for (insert, index) in ops {
                let id = *index.get(&ids);
                let entry = FreeBlock::new(id, &blocks[id]);
                if insert && model.insert(entry) {
                    set.insert(blocks.slots(), id);
                } else if !insert {
                    prop_assert_eq!(set.remove(blocks.slots(), id), model.remove(&entry));
                }
                let size = entry.size;
                let mut rest = model.range(FreeBlock::first_of(size)..);
                let best = set.best_fit(blocks.slots(), size);
                prop_assert_eq!(best.map(|at| at.id), rest.next().map(|free| free.id));
                if !insert {
                    continue;
                }
                prop_assert!(set.iter(blocks.slots()).eq(model.iter().map(|free| free.id)));
                set.settle(blocks.slots());
                let best = set.best_fit(blocks.slots(), size);
                let next = best.and_then(|at| set.after(at));
                prop_assert_eq!(next.map(|at| at.id), rest.next().map(|free| free.id));
                let below = model.range(..FreeBlock::first_of(size)).rev().map(|free| free.id);
                prop_assert_eq!(set.below(blocks.slots(), size), Vec::from_iter(below));
            }
            prop_assert!(set.iter(blocks.slots()).eq(model.iter().map(|free| free.id)));
            while let Some(at) = set.best_fit(blocks.slots(), 0) {
                set.remove_at(at);
                prop_assert_eq!(Some(at.id), model.pop_first().map(|free| free.id));
            }
            prop_assert!(model.is_empty());
        }
    }
}
