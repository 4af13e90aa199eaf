//! Coalesces a freed block with its free neighbours: first the one before it, then the one after it.
//!
//! The freed block always survives and keeps its own state. Statistics record only the net change.
//!
//! Source: PyTorch 2.11, `free_block`, `try_merge_blocks`.

use super::{BlockId, PyTorch};
use crate::driver::Driver;
use crate::history::Action;

impl<D: Driver> PyTorch<D> {
    /// Coalesces an idle block with its free neighbours and puts it into its pool.
    pub(super) fn free_block(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (addr, size, requested) = (block.addr, block.size, block.requested);
        let (prev, next, shelf) = (block.prev, block.next, block.shelf);
        // Recorded before coalescing, so that the address is the program's.
        self.trace(Action::FreeCompleted, shelf, addr, requested);

        let (mut splits, mut split_bytes) = (0_i64, 0_i64);
        for neighbour in [prev, next].into_iter().flatten() {
            if let Some(bytes) = self.try_merge(id, neighbour) {
                splits -= 1;
                split_bytes -= bytes.cast_signed();
            }
        }
        self.pools.insert_block(&mut self.blocks, id);

        let block = &self.blocks[id];
        if block.is_split() {
            splits += 1;
            split_bytes += block.size.cast_signed();
        }
        let kind = self.pools[shelf].kind;
        if !block.is_expandable() {
            self.stats.inactive_split.change(kind, splits);
            self.stats.inactive_split_bytes.change(kind, split_bytes);
        }
        self.stats.active.decrease(kind, 1);
        self.stats.active_bytes.decrease(kind, size);
        self.stats.requested_bytes.decrease(kind, requested);
    }

    /// Merges `gone`, a neighbour, into `kept` if it is idle and both are mapped or both unmapped.
    /// Returns the bytes that `kept` gained.
    pub(super) fn try_merge(&mut self, kept: BlockId, gone: BlockId) -> Option<u64> {
        let other = &self.blocks[gone];
        if !other.is_idle() || other.mapped != self.blocks[kept].mapped {
            return None;
        }
        let gained = other.size;
        self.pools.remove_block(&self.blocks, gone);
        let other = &self.blocks[gone];
        if self.blocks[kept].prev == Some(gone) {
            let (addr, before) = (other.addr, other.prev);
            self.blocks[kept].addr = addr;
            let after = self.blocks[kept].next;
            self.blocks.link(kept, before, after);
        } else {
            let behind = other.next;
            let before = self.blocks[kept].prev;
            self.blocks.link(kept, before, behind);
        }
        self.blocks[kept].size += gained;
        self.blocks.remove(gone);
        Some(gained)
    }
}
