//! Coalesces a freed block with its free neighbours: first the one before it, then the one after it.
//!
//! The freed block always survives and keeps its own state. Statistics record only the net change.
//!
//! Source: PyTorch 2.11, `free_block`, `try_merge_blocks`.

use super::block::State;
use super::{BlockId, PyTorch};
use crate::driver::Driver;
use crate::history::Action;

impl<D: Driver> PyTorch<D> {
    /// Coalesces a block that nothing uses any more with its free neighbours and puts it into its pool.
    #[inline]
    pub(super) fn free_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Free;
        let (prev, next, kind, expandable) =
            (block.prev, block.next, block.kind, block.is_expandable());
        // Recorded before coalescing, so that the address is the program's.
        if self.history.is_recording() {
            let (addr, requested, shelf) = (block.addr, block.requested, block.shelf);
            self.trace(Action::FreeCompleted, shelf, addr, requested);
        }
        let (mut splits, mut split_bytes) = (0_i64, 0_i64);
        if let Some(bytes) = prev.and_then(|prev| self.merge_previous(id, prev)) {
            splits -= 1;
            split_bytes -= bytes.cast_signed();
        }
        if let Some(bytes) = next.and_then(|next| self.merge_next(id, next)) {
            splits -= 1;
            split_bytes -= bytes.cast_signed();
        }
        self.pools.insert_block(&mut self.blocks, id);
        if !expandable {
            let block = &self.blocks[id];
            if block.is_split() {
                splits += 1;
                split_bytes += block.size.cast_signed();
            }
            self.stats.inactive_split.change(kind, splits);
            self.stats.inactive_split_bytes.change(kind, split_bytes);
        }
    }

    /// Merges a block with its neighbours in the same state.
    pub(super) fn merge_with_neighbours(&mut self, id: BlockId) {
        if let Some(prev) = self.blocks[id].prev {
            self.merge_previous(id, prev);
        }
        if let Some(next) = self.blocks[id].next {
            self.merge_next(id, next);
        }
    }

    /// Merges `prev`, the previous block, into `id` if both are in the same state, free or unmapped. Returns
    /// the bytes that `id` gained.
    #[inline(always)]
    fn merge_previous(&mut self, id: BlockId, prev: BlockId) -> Option<u64> {
        let gone = &self.blocks[prev];
        if gone.state != self.blocks[id].state {
            return None;
        }
        let (addr, gained, before) = (gone.addr, gone.size, gone.prev);
        self.pools.remove_block(&self.blocks, prev);
        self.blocks.remove(prev);
        let block = &mut self.blocks[id];
        block.rank = self.ranks.of_moved(block.rank, block.addr, addr);
        block.addr = addr;
        block.size += gained;
        block.prev = before;
        if let Some(before) = before {
            self.blocks[before].next = Some(id);
        }
        Some(gained)
    }

    /// As [`Self::merge_previous`], with the next block.
    #[inline(always)]
    fn merge_next(&mut self, id: BlockId, next: BlockId) -> Option<u64> {
        let gone = &self.blocks[next];
        if gone.state != self.blocks[id].state {
            return None;
        }
        let (gained, behind) = (gone.size, gone.next);
        self.pools.remove_block(&self.blocks, next);
        self.blocks.remove(next);
        let block = &mut self.blocks[id];
        block.size += gained;
        block.next = behind;
        if let Some(behind) = behind {
            self.blocks[behind].prev = Some(id);
        }
        Some(gained)
    }
}
