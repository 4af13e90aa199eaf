//! Pools, and in each of them a shelf for every stream.

use std::ops::{Index, IndexMut};

use super::arena::{Arena, SlotsMut};
use super::block::{Block, Blocks};
use super::flat_hash::FIBONACCI;
use super::free_blocks::FreeBlocks;
use super::ordered::OrderedSet;
use super::{BlockId, PoolId, ShelfId};
use crate::driver::{DeviceAddr, StreamId};
use crate::mempool::MempoolId;
use crate::stats::PoolKind;

/// The blocks of one kind, of the default pools or of a private pool.
#[derive(Debug)]
pub(super) struct BlockPool {
    kind: PoolKind,
    /// The private pool it belongs to.
    owner: Option<MempoolId>,
    /// The shelves in the order of their streams, which is the order in which blocks are searched.
    shelves: Vec<(StreamId, ShelfId)>,
    /// Shelves that were looked up recently, each at the place of its stream.
    recent: [Option<(StreamId, ShelfId)>; RECENT],
}

/// A power of two above the number of streams that most programs use at a time.
const RECENT: usize = 8;

/// The place of a stream among recent shelves.
#[inline]
fn place_of(stream: StreamId) -> usize {
    // Handles are addresses or multiples of large numbers, so their low bits are alike.
    (stream.0.wrapping_mul(FIBONACCI) >> (u64::BITS - RECENT.ilog2())) as usize
}

impl BlockPool {
    /// Whether it belongs to a private pool.
    pub(super) fn is_private(&self) -> bool {
        self.owner.is_some()
    }

    /// The private pool it belongs to.
    pub(super) fn owner(&self) -> Option<MempoolId> {
        self.owner
    }

    /// The id of its private pool, or [`MempoolId::DEFAULT`].
    pub(super) fn name(&self) -> MempoolId {
        self.owner.unwrap_or(MempoolId::DEFAULT)
    }
}

/// The idle blocks of one stream in one pool. Blocks of different shelves never serve the same request and
/// are never coalesced.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) pool: PoolId,
    /// The kind of the pool.
    pub(super) kind: PoolKind,
    pub(super) stream: StreamId,
    /// Mapped idle blocks.
    pub(super) free: FreeBlocks,
    /// Unmapped blocks of expandable segments.
    unmapped: OrderedSet<UnmappedBlock>,
}

/// An unmapped range, ordered by address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct UnmappedBlock {
    addr: DeviceAddr,
    id: BlockId,
}

/// A filler of unused places.
impl Default for UnmappedBlock {
    fn default() -> Self {
        let (addr, id) = (DeviceAddr::NULL, BlockId::FIRST);
        Self { addr, id }
    }
}

impl Shelf {
    /// The unmapped ranges, lowest address first.
    pub(super) fn unmapped(&self) -> impl Iterator<Item = BlockId> {
        self.unmapped.iter().map(|range| range.id)
    }

    /// Inserts an idle block, as free or unmapped.
    #[inline(always)]
    fn insert(&mut self, blocks: Blocks<'_>, id: BlockId) {
        let block = &blocks[id];
        if block.is_mapped() {
            self.free.insert(blocks, id);
        } else {
            let addr = block.addr;
            self.unmapped.insert(UnmappedBlock { addr, id });
        }
    }

    /// Removes a block, whose state must not have changed since it was inserted.
    #[inline(always)]
    pub(super) fn remove(&mut self, blocks: Blocks<'_>, id: BlockId) {
        let block = &blocks[id];
        let found = if block.is_mapped() {
            self.free.remove(blocks, id)
        } else {
            let addr = block.addr;
            self.unmapped.remove(&UnmappedBlock { addr, id })
        };
        debug_assert!(found, "block {id:?} was not on its shelf");
    }
}

/// All pools with their shelves.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: Arena<BlockPool>,
    shelves: Arena<Shelf>,
    /// Number of searches in the default large pool while garbage collection was on: the clock for the ages of
    /// its blocks.
    pub(super) searches: u64,
}

impl Pools {
    /// Adds an empty pool.
    pub(super) fn add(&mut self, kind: PoolKind, owner: Option<MempoolId>) -> PoolId {
        self.pools.insert(BlockPool {
            kind,
            owner,
            shelves: Vec::new(),
            recent: [None; RECENT],
        })
    }

    /// Removes a pool without blocks.
    pub(super) fn remove(&mut self, id: PoolId) {
        for (_, shelf) in std::mem::take(&mut self.pools[id].shelves) {
            self.shelves.remove(shelf);
        }
        self.pools.remove(id);
    }

    /// The shelf of a stream in a pool.
    #[inline(always)]
    pub(super) fn shelf(&mut self, id: PoolId, stream: StreamId) -> ShelfId {
        match self.pools[id].recent[place_of(stream)] {
            Some((recent, shelf)) if recent == stream => shelf,
            _ => self.find_or_add_shelf(id, stream),
        }
    }

    fn find_or_add_shelf(&mut self, id: PoolId, stream: StreamId) -> ShelfId {
        let pool = &mut self.pools[id];
        let found = pool
            .shelves
            .binary_search_by_key(&stream, |&(stream, _)| stream);
        let at = found.unwrap_or_else(|at| {
            let shelf = self.shelves.insert(Shelf {
                pool: id,
                kind: pool.kind,
                stream,
                free: FreeBlocks::default(),
                unmapped: OrderedSet::default(),
            });
            pool.shelves.insert(at, (stream, shelf));
            at
        });
        pool.recent[place_of(stream)] = Some(pool.shelves[at]);
        pool.shelves[at].1
    }

    /// The ids of all pools, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = PoolId> {
        self.pools.iter().map(|(id, _)| id)
    }

    /// The pool of a shelf.
    pub(super) fn pool_of(&self, shelf: ShelfId) -> &BlockPool {
        &self.pools[self.shelves[shelf].pool]
    }

    /// The free blocks of a pool in search order.
    pub(super) fn free(
        &self,
        blocks: &Arena<Block>,
        pool: PoolId,
    ) -> impl Iterator<Item = BlockId> {
        let shelves = self.shelves_of(pool);
        shelves.flat_map(|shelf| shelf.free.iter(blocks.slots()))
    }

    /// The unmapped ranges of a pool, by stream and address.
    pub(super) fn unmapped(&self, pool: PoolId) -> impl Iterator<Item = BlockId> {
        self.shelves_of(pool).flat_map(Shelf::unmapped)
    }

    fn shelves_of(&self, pool: PoolId) -> impl Iterator<Item = &Shelf> {
        let shelves = self.pools[pool].shelves.iter();
        shelves.map(|&(_, shelf)| &self.shelves[shelf])
    }

    /// Inserts an idle block into its shelf, as free or unmapped. A free block starts with age 0.
    #[inline(always)]
    pub(super) fn insert_block(&mut self, blocks: &mut SlotsMut<'_, Block>, id: BlockId) {
        let block = &mut blocks[id];
        let shelf = &mut self.shelves[block.shelf];
        block.searches_before = self.searches;
        shelf.insert(blocks.slots(), id);
    }

    /// Removes a block from its shelf. Its state must not have changed since it was inserted.
    #[inline(always)]
    pub(super) fn remove_block(&mut self, blocks: &Arena<Block>, id: BlockId) {
        self.shelves[blocks[id].shelf].remove(blocks.slots(), id);
    }

    /// The number of searches since a free block of the default large pool was inserted.
    pub(super) fn age(&self, block: &Block) -> u64 {
        self.searches - block.searches_before
    }
}

impl Index<PoolId> for Pools {
    type Output = BlockPool;

    fn index(&self, id: PoolId) -> &BlockPool {
        &self.pools[id]
    }
}

impl Index<ShelfId> for Pools {
    type Output = Shelf;

    fn index(&self, id: ShelfId) -> &Shelf {
        &self.shelves[id]
    }
}

impl IndexMut<ShelfId> for Pools {
    fn index_mut(&mut self, id: ShelfId) -> &mut Shelf {
        &mut self.shelves[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_removed_leaves_nothing_behind() {
        let mut pools = Pools::default();
        let kept = pools.add(PoolKind::Small, None);
        let gone = pools.add(PoolKind::Large, Some(MempoolId(0, 1)));
        let shelves = [1, 2, 1].map(|nth| pools.shelf(gone, StreamId::nth(nth)));
        assert!(shelves[0] == shelves[2] && shelves[0] != shelves[1]);
        assert_eq!(pools[shelves[1]].stream, StreamId::nth(2));
        pools.remove(gone);
        assert_eq!(pools.iter().collect::<Vec<_>>(), [kept]);
        assert_eq!(pools.shelves.iter().count(), 0);
    }
}
