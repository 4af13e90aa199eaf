//! Splits blocks.
//!
//! Source: PyTorch 2.11, `should_split` and the first half of `alloc_found_block`.

use super::block::Block;
use super::size::{MIN_BLOCK, SMALL_LIMIT};
use super::{BlockId, PyTorch, Request};
use crate::driver::Driver;
use crate::stats::PoolKind;

impl<D: Driver> PyTorch<D> {
    /// Whether the remainder of a block is split off.
    ///
    /// Small pools, and all pools for requests that may use expandable segments, split off remainders
    /// of at least 512 bytes. Otherwise the remainder must exceed 1 MiB and the request must not be
    /// oversize.
    pub(super) fn should_split(&self, id: BlockId, request: &Request) -> bool {
        let block = &self.blocks[id];
        let shelf = &self.pools[block.shelf];
        if self.private_pools.has_never_split() {
            let pool = self.pools[shelf.pool].name();
            if self.private_pools.is_never_split(pool) {
                return false;
            }
        }
        let remaining = block.size - request.size;
        if shelf.kind == PoolKind::Small || request.expandable {
            remaining >= MIN_BLOCK
        } else {
            !self.settings.is_oversize(request.size) && remaining > SMALL_LIMIT
        }
    }

    /// Adds a block that was part of another.
    pub(super) fn add_part(&mut self, mut part: Block) -> BlockId {
        part.created = self.creations.part(part.created);
        self.blocks.insert(part)
    }

    /// Splits the first `size` bytes off a block. Returns them as a new block; the remainder keeps the
    /// identity of the old block and goes into its pool.
    pub(super) fn split(&mut self, rest: BlockId, size: u64) -> BlockId {
        let was_split = self.blocks[rest].is_split();
        let block = &self.blocks[rest];
        let (addr, prev) = (block.addr, block.prev);
        let front = block.part(addr, size);
        let front = self.add_part(front);
        self.blocks.link(front, prev, Some(rest));
        let block = &mut self.blocks[rest];
        block.addr = addr.offset(size);
        block.size -= size;
        let (left, shelf, expandable) = (block.size, block.shelf, block.is_expandable());
        self.pools.insert_block(&mut self.blocks, rest);
        if !expandable {
            let kind = self.pools[shelf].kind;
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
    pub(super) fn take_whole(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        if block.is_split() && !block.is_expandable() {
            let (kind, size) = (self.pools[block.shelf].kind, block.size);
            self.stats.inactive_split_bytes.decrease(kind, size);
            self.stats.inactive_split.decrease(kind, 1);
        }
    }
}
