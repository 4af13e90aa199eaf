//! Pools: the free blocks in search order.

use super::BlockId;
use super::arena::Arena;
use super::block::Block;
use super::ordered::{Cursor, OrderedSet};
use crate::driver::{DeviceAddr, StreamId};
use crate::mempool::MempoolId;
use crate::stats::PoolKind;

/// A free block in search order: by stream, then size, then number, then address. The
/// [tie break](super::tie_break) decides the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FreeBlock {
    pub(super) stream: StreamId,
    pub(super) size: u64,
    pub(super) created: u64,
    pub(super) addr: DeviceAddr,
    pub(super) id: BlockId,
}

impl FreeBlock {
    /// The entry of a block.
    pub(super) fn new(id: BlockId, block: &Block) -> Self {
        Self {
            stream: block.stream,
            size: block.size,
            created: block.created,
            addr: block.addr,
            id,
        }
    }
}

/// An unmapped range, ordered by stream, then address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct UnmappedBlock {
    pub(super) stream: StreamId,
    pub(super) addr: DeviceAddr,
    pub(super) id: BlockId,
}

impl UnmappedBlock {
    /// The entry of a block.
    pub(super) fn new(id: BlockId, block: &Block) -> Self {
        Self {
            stream: block.stream,
            addr: block.addr,
            id,
        }
    }
}

/// The free blocks of one kind, of the default pools or of a private pool.
#[derive(Debug)]
pub(super) struct BlockPool {
    pub(super) kind: PoolKind,
    /// The private pool it belongs to.
    owner: Option<MempoolId>,
    /// Mapped idle blocks.
    pub(super) free: OrderedSet<FreeBlock>,
    /// Unmapped blocks of expandable segments.
    pub(super) unmapped: OrderedSet<UnmappedBlock>,
    /// Number of searches while garbage collection was on: the clock for block ages.
    pub(super) searches: u64,
}

impl BlockPool {
    pub(super) fn new(kind: PoolKind, owner: Option<MempoolId>) -> Self {
        Self {
            kind,
            owner,
            free: OrderedSet::default(),
            unmapped: OrderedSet::default(),
            searches: 0,
        }
    }

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

    /// The smallest free block of `stream` with at least `size` bytes, the first among equals. If the stream
    /// has none: the first block of the next stream, or the end.
    pub(super) fn best_fit(&self, stream: StreamId, size: u64) -> Cursor {
        self.free.lower_bound(&FreeBlock {
            stream,
            size,
            created: 0,
            addr: DeviceAddr::NULL,
            id: BlockId::FIRST,
        })
    }

    /// The unmapped ranges of `stream`, lowest address first.
    pub(super) fn unmapped_of(&self, stream: StreamId) -> impl Iterator<Item = BlockId> {
        let first = self.unmapped.lower_bound(&UnmappedBlock {
            stream,
            addr: DeviceAddr::NULL,
            id: BlockId::FIRST,
        });
        self.unmapped
            .iter_from(first)
            .take_while(move |range| range.stream == stream)
            .map(|range| range.id)
    }
}

impl Arena<BlockPool> {
    /// Inserts an idle block into its pool, as free or unmapped. A free block starts with age 0.
    pub(super) fn insert_block(&mut self, blocks: &mut Arena<Block>, id: BlockId) {
        let block = &mut blocks[id];
        let pool = &mut self[block.pool];
        if block.mapped {
            block.searches_before = pool.searches;
            pool.free.insert(FreeBlock::new(id, block));
        } else {
            pool.unmapped.insert(UnmappedBlock::new(id, block));
        }
    }

    /// Removes a block from its pool. Its state must not have changed since it was inserted.
    pub(super) fn remove_block(&mut self, blocks: &Arena<Block>, id: BlockId) {
        let block = &blocks[id];
        let pool = &mut self[block.pool];
        let found = if block.mapped {
            pool.free.remove(&FreeBlock::new(id, block))
        } else {
            pool.unmapped.remove(&UnmappedBlock::new(id, block))
        };
        debug_assert!(found, "block {id:?} was not in its pool");
    }

    /// The number of searches since a free block was inserted.
    pub(super) fn age(&self, block: &Block) -> u64 {
        self[block.pool].searches - block.searches_before
    }
}
