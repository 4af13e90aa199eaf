//! The free blocks of one stream in one pool, in search order.
//!
//! The order is by size, then number, then address; the [tie break](super::tie_break) decides the numbers.
//! Blocks are found by the [class](super::size_class) of their size: most classes have one block or none, and
//! a set of the classes in use leads to the next one. A class with several blocks keeps them in an
//! [`OrderedSet`].

use super::BlockId;
use super::arena::Arena;
use super::block::Block;
use super::ordered::{Cursor as Place, OrderedSet};
use super::size_class::{ClassSet, class_of};
use crate::driver::DeviceAddr;

/// A free block in search order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FreeBlock {
    size: u64,
    created: u64,
    addr: DeviceAddr,
    id: BlockId,
}

impl FreeBlock {
    fn new(id: BlockId, block: &Block) -> Self {
        Self {
            size: block.size,
            created: block.created,
            addr: block.addr,
            id,
        }
    }

    /// A lower bound of all blocks of at least `size` bytes.
    fn first_of(size: u64) -> Self {
        Self {
            size,
            created: 0,
            addr: DeviceAddr::NULL,
            id: BlockId::FIRST,
        }
    }
}

/// The blocks of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Empty,
    One(BlockId),
    /// The index of a set of any size; it stays until its last block is removed.
    Several(u32),
}

/// The position of a block in [`FreeBlocks`], valid until they change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    /// The block.
    pub(super) id: BlockId,
    class: usize,
    /// The place among the blocks of the class, if there are several.
    place: Place,
}

/// Free blocks in search order.
///
/// Invariant: a block's size, number and address do not change while it is in the set.
#[derive(Debug, Default)]
pub(super) struct FreeBlocks {
    in_use: ClassSet,
    /// The classes up to the largest one ever used.
    classes: Vec<Class>,
    sets: Vec<OrderedSet<FreeBlock>>,
    /// Empty sets.
    spare: Vec<u32>,
}

impl FreeBlocks {
    /// Inserts a block that is not present.
    #[inline]
    pub(super) fn insert(&mut self, blocks: &Arena<Block>, id: BlockId) {
        let block = &blocks[id];
        let class = class_of(block.size);
        if class >= self.classes.len() {
            self.classes.resize(class + 1, Class::Empty);
        }
        match self.classes[class] {
            Class::Empty => {
                self.classes[class] = Class::One(id);
                self.in_use.insert(class);
            }
            Class::One(other) => {
                let set = self.spare.pop().unwrap_or_else(|| {
                    self.sets.push(OrderedSet::default());
                    self.sets.len() as u32 - 1
                });
                self.classes[class] = Class::Several(set);
                let set = &mut self.sets[set as usize];
                set.insert(FreeBlock::new(other, &blocks[other]));
                set.insert(FreeBlock::new(id, block));
            }
            Class::Several(set) => self.sets[set as usize].insert(FreeBlock::new(id, block)),
        }
    }

    /// Removes a block. Returns whether it was present.
    #[inline]
    pub(super) fn remove(&mut self, blocks: &Arena<Block>, id: BlockId) -> bool {
        let block = &blocks[id];
        let class = class_of(block.size);
        match self.classes.get(class) {
            Some(&Class::One(one)) if one == id => {
                self.leave(class);
                true
            }
            Some(&Class::Several(set)) => {
                let found = self.sets[set as usize].remove(&FreeBlock::new(id, block));
                self.leave_if_empty(class, set);
                found
            }
            _ => false,
        }
    }

    /// Removes the block at a cursor.
    #[inline]
    pub(super) fn remove_at(&mut self, cursor: Cursor) {
        match self.classes[cursor.class] {
            Class::Several(set) => {
                self.sets[set as usize].remove_at(cursor.place);
                self.leave_if_empty(cursor.class, set);
            }
            _ => self.leave(cursor.class),
        }
    }

    fn leave_if_empty(&mut self, class: usize, set: u32) {
        if self.sets[set as usize].is_empty() {
            self.spare.push(set);
            self.leave(class);
        }
    }

    fn leave(&mut self, class: usize) {
        self.classes[class] = Class::Empty;
        self.in_use.remove(class);
    }

    /// The first block of at least `size` bytes.
    #[inline]
    pub(super) fn best_fit(&self, blocks: &Arena<Block>, size: u64) -> Option<Cursor> {
        let class = class_of(size);
        let here = match self.classes.get(class)? {
            Class::Empty => None,
            &Class::One(id) => Some(Cursor::of_one(id, class)).filter(|_| blocks[id].size >= size),
            &Class::Several(set) => {
                let place = self.sets[set as usize].lower_bound(&FreeBlock::first_of(size));
                self.at(class, set, place)
            }
        };
        here.or_else(|| self.first_in(self.in_use.after(class)?))
    }

    /// The block after a cursor.
    pub(super) fn after(&self, cursor: Cursor) -> Option<Cursor> {
        let next = match self.classes[cursor.class] {
            Class::Several(set) => {
                let place = self.sets[set as usize].after(cursor.place);
                self.at(cursor.class, set, place)
            }
            _ => None,
        };
        next.or_else(|| self.first_in(self.in_use.after(cursor.class)?))
    }

    /// All blocks in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> {
        let first = self.in_use.first();
        let classes = std::iter::successors(first, |&class| self.in_use.after(class));
        classes.flat_map(|class| self.of_class(class))
    }

    /// The blocks of less than `size` bytes, last first.
    pub(super) fn below(&self, blocks: &Arena<Block>, size: u64) -> impl Iterator<Item = BlockId> {
        let end = class_of(size);
        let own = (end < self.classes.len()).then_some(end);
        let before = self.in_use.before(end.min(self.classes.len()));
        let before = std::iter::successors(before, |&class| self.in_use.before(class));
        let classes = own.into_iter().chain(before);
        let all = classes.flat_map(|class| self.of_class(class).rev());
        all.filter(move |&id| blocks[id].size < size)
    }

    /// The first block of a class that is not empty.
    #[inline]
    fn first_in(&self, class: usize) -> Option<Cursor> {
        match self.classes[class] {
            Class::Empty => None,
            Class::One(id) => Some(Cursor::of_one(id, class)),
            Class::Several(set) => self.at(class, set, Place::default()),
        }
    }

    fn at(&self, class: usize, set: u32, place: Place) -> Option<Cursor> {
        let id = self.sets[set as usize].get(place)?.id;
        Some(Cursor { id, class, place })
    }

    fn of_class(&self, class: usize) -> impl DoubleEndedIterator<Item = BlockId> {
        let (one, set) = match self.classes[class] {
            Class::Empty => (None, None),
            Class::One(id) => (Some(id), None),
            Class::Several(set) => (None, Some(&self.sets[set as usize])),
        };
        let several = set.into_iter().flat_map(|set| set.iter().map(|free| free.id));
        one.into_iter().chain(several)
    }
}

impl Cursor {
    fn of_one(id: BlockId, class: usize) -> Self {
        Self {
            id,
            class,
            place: Place::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::pytorch::size::MIN_BLOCK;

    /// Sizes of few classes and of many, and few numbers, so that every part of the order matters.
    fn blocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let units = prop_oneof![1_u64..8, 250_u64..270, 1_000_u64..1_040, 1_u64..1 << 30];
        prop::collection::vec((units, 0_u64..3), 1..300)
    }

    proptest! {
        /// Compares with a sorted set of the same entries.
        #[test]
        fn behaves_as_a_sorted_set(
            made in blocks(),
            ops in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..600),
        ) {
            let mut blocks = Arena::default();
            let ids: Vec<BlockId> = made.iter().enumerate().map(|(at, &(units, created))| {
                let addr = DeviceAddr(((at as u64 * 7919) % 1024 + 1) << 40);
                let mut block = Block::of_size(addr, units * MIN_BLOCK);
                block.created = created;
                blocks.insert(block)
            }).collect();
            let mut set = FreeBlocks::default();
            let mut model = BTreeSet::new();
            for (insert, index) in ops {
                let id = *index.get(&ids);
                let entry = FreeBlock::new(id, &blocks[id]);
                if insert && model.insert(entry) {
                    set.insert(&blocks, id);
                } else if !insert {
                    prop_assert_eq!(set.remove(&blocks, id), model.remove(&entry));
                }
                let size = entry.size;
                let mut rest = model.range(FreeBlock::first_of(size)..);
                let best = set.best_fit(&blocks, size);
                prop_assert_eq!(best.map(|at| at.id), rest.next().map(|free| free.id));
                let next = best.and_then(|at| set.after(at));
                prop_assert_eq!(next.map(|at| at.id), rest.next().map(|free| free.id));
                let below = model.range(..FreeBlock::first_of(size)).rev().map(|free| free.id);
                prop_assert!(set.below(&blocks, size).eq(below));
            }
            prop_assert!(set.iter().eq(model.iter().map(|free| free.id)));
            while let Some(at) = set.best_fit(&blocks, 0) {
                set.remove_at(at);
                prop_assert_eq!(Some(at.id), model.pop_first().map(|free| free.id));
            }
            prop_assert!(model.is_empty());
        }
    }
}
