//! Splits blocks.
//!
//! Source: PyTorch 2.11, `should_split` and the first half of `alloc_found_block`.

use super::block::Block;
use super::size::{MIN_BLOCK, SMALL_LIMIT};
use super::{BlockId, PyTorch, Request};
use crate::driver::{DeviceAddr, Driver};
use crate::stats::PoolKind;

impl<D: Driver> PyTorch<D> {
    /// Whether the remainder of a block is split off.
    ///
    /// Small pools, and all pools for requests that may use expandable segments, split off remainders
    /// of at least 512 bytes. Otherwise the remainder must exceed 1 MiB and the request must not be
    /// oversize.
    #[inline(always)]
    pub(super) fn should_split(&self, id: BlockId, request: &Request) -> bool {
        let block = &self.blocks[id];
        if self.private_pools.is_any_never_split() {
            let pool = self.pools.pool_of(block.shelf).name();
            if self.private_pools.is_never_split(pool) {
                return false;
            }
        }
        let remaining = block.size - request.size;
        if block.kind == PoolKind::Small || request.expandable {
            remaining >= MIN_BLOCK
        } else {
            !self.settings.is_oversize(request.size) && remaining > SMALL_LIMIT
        }
    }

    /// Adds an unlinked block for a part of `whole`, in the same state if that is unmapped, else free.
    #[inline(always)]
    pub(super) fn add_part(&mut self, whole: BlockId, addr: DeviceAddr, bytes: u64) -> BlockId {
        let whole = &self.blocks[whole];
        let mut part = whole.part(addr, bytes);
        part.rank = self.ranks.of_part(whole.rank, whole.addr, addr);
        self.blocks.insert(part)
    }

    /// Splits the first `size` bytes off a block. Returns them as a new block; the remainder keeps the
    /// identity of the old block and goes into its pool.
    #[inline(always)]
    pub(super) fn split(&mut self, rest: BlockId, size: u64) -> BlockId {
        let block = &self.blocks[rest];
        let (start, rank, prev) = (block.addr, block.rank, block.prev);
        let was_split = block.is_split();
        let front = self.blocks.insert(Block {
            rank: self.ranks.of_part(rank, start, start),
            prev,
            next: Some(rest),
            ..block.part(start, size)
        });
        let blocks = &mut self.blocks.slots_mut();
        if let Some(prev) = prev {
            blocks[prev].next = Some(front);
        }
        let block = &mut blocks[rest];
        block.prev = Some(front);
        block.rank = self.ranks.of_moved(rank, start, start.offset(size));
        block.addr = start.offset(size);
        block.size -= size;
        let (left, kind, expandable) = (block.size, block.kind, block.is_expandable());
        self.pools.insert_block(blocks, rest);
        if !expandable {
            if was_split {
                // An unreturnable block became smaller.
                self.stats.inactive_split_bytes.decrease(kind, size);
            } else {
                self.stats.inactive_split_bytes.increase(kind, left);
                self.stats.inactive_split.increase(kind, 1);
            }
        }
        front
    }

    /// Updates the statistics for a block that is taken whole.
    #[inline(always)]
    pub(super) fn take_whole(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        if block.is_split() && !block.is_expandable() {
            let (kind, size) = (block.kind, block.size);
            self.stats.inactive_split_bytes.decrease(kind, size);
            self.stats.inactive_split.decrease(kind, 1);
        }
    }
}
