//! The allocated blocks by address.
//!
//! A hash table with linear probing. A slot holds half of the hash and the block, whose address decides; a
//! removal moves later entries back, so the table never fills up with removed ones.

use super::BlockId;
use super::arena::Arena;
use super::block::Block;
use crate::driver::DeviceAddr;

/// Allocated blocks, found by address.
///
/// Invariants: the number of slots is a power of two up to 2^32; between the slot that an entry's hash points
/// to and its own slot no slot is empty.
#[derive(Debug)]
pub(super) struct LiveBlocks {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The upper half of the hash of the address.
    hash: u32,
    id: Option<BlockId>,
}

const EMPTY: Slot = Slot { hash: 0, id: None };
const FEWEST_SLOTS: usize = 64;

impl Default for LiveBlocks {
    fn default() -> Self {
        Self {
            slots: vec![EMPTY; FEWEST_SLOTS],
            len: 0,
        }
    }
}

impl LiveBlocks {
    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The block at an address.
    #[inline]
    pub(super) fn get(&self, blocks: &Arena<Block>, addr: DeviceAddr) -> Option<BlockId> {
        self.slots[self.find(blocks, addr)?].id
    }

    /// Inserts a block whose address is not present.
    #[inline]
    pub(super) fn insert(&mut self, addr: DeviceAddr, id: BlockId) {
        if 4 * (self.len + 1) > 3 * self.slots.len() {
            self.grow();
        }
        self.len += 1;
        self.put(Slot {
            hash: hash(addr),
            id: Some(id),
        });
    }

    /// Removes the block at an address.
    #[inline]
    pub(super) fn remove(&mut self, blocks: &Arena<Block>, addr: DeviceAddr) -> Option<BlockId> {
        let found = self.find(blocks, addr)?;
        let removed = self.slots[found].id;
        self.len -= 1;
        let mut hole = found;
        let mut at = self.next(found);
        while self.slots[at].id.is_some() {
            if self.may_move(at, hole) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = EMPTY;
        removed
    }

    /// All blocks in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.slots.iter().filter_map(|slot| slot.id)
    }

    #[inline]
    fn find(&self, blocks: &Arena<Block>, addr: DeviceAddr) -> Option<usize> {
        let hash = hash(addr);
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            let id = slot.id?;
            if slot.hash == hash && blocks[id].addr == addr {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    #[inline]
    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.hash);
        while self.slots[at].id.is_some() {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    /// Whether the entry of slot `at` may move back to an empty slot: the search for it passes there.
    fn may_move(&self, at: usize, to: usize) -> bool {
        let mask = self.slots.len() - 1;
        let from_home = at.wrapping_sub(self.home(self.slots[at].hash)) & mask;
        from_home >= at.wrapping_sub(to) & mask
    }

    /// The slot that a hash points to.
    fn home(&self, hash: u32) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (u64::from(hash) << bits >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; 2 * self.slots.len()];
        let old = std::mem::replace(&mut self.slots, larger);
        for slot in old.into_iter().filter(|slot| slot.id.is_some()) {
            self.put(slot);
        }
    }
}

/// The upper half of a multiplicative hash, in which neighbouring addresses lie far apart.
fn hash(addr: DeviceAddr) -> u32 {
    /// 2^64 divided by the golden ratio.
    const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;
    (addr.0.wrapping_mul(FIBONACCI) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with the standard library's map; clusters of neighbouring addresses and scattered ones.
        #[test]
        fn behaves_as_a_hash_map(
            ops in prop::collection::vec((any::<bool>(), prop_oneof![0_u64..200, any::<u64>()]), 1..2000),
        ) {
            let mut blocks = Arena::default();
            let mut table = LiveBlocks::default();
            let mut model = HashMap::new();
            for (insert, units) in ops {
                let addr = DeviceAddr(units << 9);
                prop_assert_eq!(table.get(&blocks, addr), model.get(&addr).copied());
                if insert && !model.contains_key(&addr) {
                    let id = blocks.insert(Block::of_size(addr, 512));
                    table.insert(addr, id);
                    model.insert(addr, id);
                } else if !insert {
                    let removed = table.remove(&blocks, addr);
                    prop_assert_eq!(removed, model.remove(&addr));
                    removed.into_iter().for_each(|id| blocks.remove(id));
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert!(model.iter().all(|(&addr, &id)| table.get(&blocks, addr) == Some(id)));
            prop_assert_eq!(table.iter().count(), model.len());
        }
    }
}
