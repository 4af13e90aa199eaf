//! Coalesces a freed block with its free neighbours: first the one before it, then the one after it.
//!
//! The freed block always survives and keeps its own state. Statistics record only the net change.
//!
//! Source: PyTorch 2.11, `free_block`, `try_merge_blocks`.

use super::block::{Block, State};
use super::{BlockId, PyTorch};
use crate::driver::Driver;
use crate::history::Action;

impl<D: Driver> PyTorch<D> {
    /// Coalesces a block that nothing uses any more with its free neighbours and puts it into its pool.
    #[inline(always)]
    pub(super) fn free_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Free;
        let (size, kind, expandable) = (block.size, block.kind, block.is_expandable());
        // Recorded before coalescing, so that the address is the program's.
        if self.history.is_recording() {
            let (addr, requested, shelf) = (block.addr, block.requested, block.shelf);
            self.trace(Action::FreeCompleted, shelf, addr, requested);
        }
        let gone = self.merge_with_neighbours(id);
        self.pools.insert_block(&mut self.blocks, id);
        if !expandable {
            let block = &self.blocks[id];
            let gained = block.size - size;
            let (splits, bytes) = if block.is_split() { (1, block.size) } else { (0, 0) };
            self.stats.inactive_split.change(kind, splits - gone);
            let bytes = bytes.cast_signed() - gained.cast_signed();
            self.stats.inactive_split_bytes.change(kind, bytes);
        }
    }

    /// Merges a block with its neighbours in the same state, free or unmapped. Returns how many these were.
    #[inline(always)]
    pub(super) fn merge_with_neighbours(&mut self, id: BlockId) -> i64 {
        let block = &self.blocks[id];
        let (state, prev, next) = (block.state, block.prev, block.next);
        let shelf = &mut self.pools[block.shelf];
        let mut gone = 0;
        if let Some(prev) = prev
            && self.blocks[prev].state == state
        {
            gone += 1;
            shelf.remove(&self.blocks, prev);
            let &Block { addr, size, prev: before, .. } = &self.blocks[prev];
            self.blocks.remove(prev);
            let block = &mut self.blocks[id];
            block.rank = self.ranks.of_moved(block.rank, block.addr, addr);
            block.addr = addr;
            block.size += size;
            block.prev = before;
            if let Some(before) = before {
                self.blocks[before].next = Some(id);
            }
        }
        if let Some(next) = next
            && self.blocks[next].state == state
        {
            gone += 1;
            shelf.remove(&self.blocks, next);
            let &Block { size, next: behind, .. } = &self.blocks[next];
            self.blocks.remove(next);
            let block = &mut self.blocks[id];
            block.size += size;
            block.next = behind;
            if let Some(behind) = behind {
                self.blocks[behind].prev = Some(id);
            }
        }
        gone
    }
}
