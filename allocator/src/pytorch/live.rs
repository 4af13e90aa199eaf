//! The allocated blocks by address.
//!
//! A hash table of buckets. Each bucket has a byte of the hash of each of its blocks in one word. One comparison
//! finds a block in it, and one finds a vacant place, so few branches are mispredicted. If a block's bucket is full,
//! the block goes to the next bucket that has room.

use super::BlockId;
use super::block::Blocks;
use super::flat_hash::FIBONACCI;
use crate::driver::DeviceAddr;

/// Allocated blocks, found by address.
///
/// Invariant: the number of buckets is a power of two, at least 4.
#[derive(Debug)]
pub(super) struct LiveBlocks {
    buckets: Vec<Bucket>,
    /// The bits of a hash below those that number a bucket.
    shift: u32,
    /// How many more blocks there can be before the table grows.
    room: usize,
}

/// The places of a bucket.
const PLACES: usize = 8;
/// The blocks per bucket above which the table grows. Few buckets overflow then.
const FULL: usize = 5;

/// Blocks whose hashes begin alike.
#[derive(Clone, Debug, Default)]
struct Bucket {
    /// A byte for each place: 0 if it is vacant, else a part of the hash.
    tags: u64,
    ids: [Option<BlockId>; PLACES],
    /// Blocks of this bucket, or of buckets before it, that were put into a bucket after this one.
    passed_on: u32,
}

/// 1 in every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The places of a word of tags that are 0, as bits in them. Places after the first one may be listed wrongly.
#[inline]
fn zeros(tags: u64) -> u64 {
    tags.wrapping_sub(ONES) & !tags & (ONES << 7)
}

impl Bucket {
    /// The place of a block.
    #[inline]
    fn find(&self, tag: u64, blocks: Blocks<'_>, addr: DeviceAddr) -> Option<(u32, BlockId)> {
        let mut alike = zeros(self.tags ^ (tag * ONES));
        while alike != 0 {
            let place = alike.trailing_zeros() / 8;
            if let Some(id) = self.ids[place as usize % PLACES]
                && blocks[id].addr == addr
            {
                return Some((place, id));
            }
            alike &= alike - 1;
        }
        None
    }

    /// Inserts a block if there is room.
    #[inline]
    fn insert(&mut self, tag: u64, id: BlockId) -> bool {
        let vacant = zeros(self.tags);
        if vacant == 0 {
            return false;
        }
        let place = vacant.trailing_zeros() / 8;
        self.tags |= tag << (8 * place);
        self.ids[place as usize % PLACES] = Some(id);
        true
    }

    #[inline]
    fn remove(&mut self, place: u32) {
        self.tags &= !(0xff << (8 * place));
        self.ids[place as usize % PLACES] = None;
    }
}

impl Default for LiveBlocks {
    fn default() -> Self {
        Self::with_buckets(4, 0)
    }
}

impl LiveBlocks {
    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        FULL * self.buckets.len() - self.room
    }

    /// A table with this many buckets, into which `len` blocks are about to be put.
    fn with_buckets(buckets: usize, len: usize) -> Self {
        Self {
            buckets: vec![Bucket::default(); buckets],
            shift: u64::BITS - buckets.trailing_zeros(),
            room: FULL * buckets - len,
        }
    }

    /// The block at an address.
    #[inline]
    pub(super) fn get(&self, blocks: Blocks<'_>, addr: DeviceAddr) -> Option<BlockId> {
        let hash = hash(addr);
        let mut number = self.home(hash);
        loop {
            let bucket = &self.buckets[number];
            let found = bucket.find(tag(hash), blocks, addr);
            if found.is_some() || bucket.passed_on == 0 {
                return found.map(|(_, id)| id);
            }
            number = self.next(number);
        }
    }

    /// Inserts an allocated block with its address, which must not be present.
    #[inline]
    pub(super) fn insert(&mut self, blocks: Blocks<'_>, addr: DeviceAddr, id: BlockId) {
        if self.room == 0 {
            self.grow(blocks);
        }
        self.room -= 1;
        self.put(hash(addr), id);
    }

    /// Removes the block at an address.
    #[inline]
    pub(super) fn remove(&mut self, blocks: Blocks<'_>, addr: DeviceAddr) -> Option<BlockId> {
        let hash = hash(addr);
        let number = self.home(hash);
        let bucket = &mut self.buckets[number];
        match bucket.find(tag(hash), blocks, addr) {
            Some((place, id)) => {
                bucket.remove(place);
                self.room += 1;
                Some(id)
            }
            None if bucket.passed_on == 0 => None,
            None => self.remove_passed_on(blocks, addr),
        }
    }

    #[cold]
    fn remove_passed_on(&mut self, blocks: Blocks<'_>, addr: DeviceAddr) -> Option<BlockId> {
        let hash = hash(addr);
        let home = self.home(hash);
        let mut number = self.next(home);
        let (place, id) = loop {
            let bucket = &self.buckets[number];
            match bucket.find(tag(hash), blocks, addr) {
                Some(found) => break found,
                None if bucket.passed_on == 0 => return None,
                None => number = self.next(number),
            }
        };
        self.buckets[number].remove(place);
        self.room += 1;
        let mut passed = home;
        while passed != number {
            self.buckets[passed].passed_on -= 1;
            passed = self.next(passed);
        }
        Some(id)
    }

    /// All blocks in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.buckets.iter().flat_map(|bucket| bucket.ids).flatten()
    }

    #[inline]
    fn put(&mut self, hash: u64, id: BlockId) {
        let mut number = self.home(hash);
        while !self.buckets[number].insert(tag(hash), id) {
            self.buckets[number].passed_on += 1;
            number = self.next(number);
        }
    }

    /// The bucket that a hash begins with.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn next(&self, number: usize) -> usize {
        (number + 1) & (self.buckets.len() - 1)
    }

    #[cold]
    fn grow(&mut self, blocks: Blocks<'_>) {
        let larger = Self::with_buckets(2 * self.buckets.len(), self.len());
        for bucket in std::mem::replace(self, larger).buckets {
            let ids = bucket.ids.into_iter().flatten();
            ids.for_each(|id| self.put(hash(blocks[id].addr), id));
        }
    }
}

/// A multiplicative hash. Its upper half, which is used, differs for neighbouring addresses.
#[inline]
fn hash(addr: DeviceAddr) -> u64 {
    addr.0.wrapping_mul(FIBONACCI)
}

/// The byte of a hash that stands in a bucket; never 0.
#[inline]
fn tag(hash: u64) -> u64 {
    hash >> 32 & 0xff | 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::pytorch::arena::Arena;
    use crate::pytorch::block::Block;

    /// Neighbouring addresses, scattered ones, and multiples of the inverse of the hash's factor, which all
    /// begin in the first bucket.
    fn units() -> impl Strategy<Value = u64> {
        let inverse = 0xf1de_83e1_9937_733d_u64;
        prop_oneof![
            0_u64..200,
            any::<u64>().prop_map(|unit| unit >> 9),
            (1_u64..60).prop_map(move |k| inverse.wrapping_mul(k << 9) >> 9),
        ]
    }

    proptest! {
        /// Compares with the standard library's map.
        #[test]
        fn behaves_as_a_hash_map(ops in prop::collection::vec((any::<bool>(), units()), 1..2000)) {
            let mut blocks = Arena::default();
            let mut table = LiveBlocks::default();
            let mut model = HashMap::new();
            for (insert, units) in ops {
                let addr = DeviceAddr(units << 9);
                prop_assert_eq!(table.get(blocks.slots(), addr), model.get(&addr).copied());
                if insert && !model.contains_key(&addr) {
                    let id = blocks.insert(Block::of_size(addr, 512));
                    table.insert(blocks.slots(), addr, id);
                    model.insert(addr, id);
                } else if !insert {
                    let removed = table.remove(blocks.slots(), addr);
                    prop_assert_eq!(removed, model.remove(&addr));
                    removed.into_iter().for_each(|id| blocks.remove(id));
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert!(model.iter().all(|(&addr, &id)| table.get(blocks.slots(), addr) == Some(id)));
            prop_assert_eq!(table.iter().count(), model.len());
            for addr in model.into_keys() {
                table.remove(blocks.slots(), addr);
            }
            prop_assert!(table.buckets.iter().all(|bucket| bucket.passed_on == 0 && bucket.tags == 0));
        }
    }
}
