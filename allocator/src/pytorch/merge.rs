//! Coalesces a freed block with its free neighbours: first the one before it, then the one after it.
//!
//! The freed block always survives and keeps its own state. Statistics record only the net change.
//!
//! Source: PyTorch 2.11, `free_block`, `try_merge_blocks`.

use super::arena::SlotsMut;
use super::block::{Block, State};
use super::pool::Pools;
use super::tie_break::Ranks;
use super::{BlockId, PyTorch};
use crate::driver::Driver;
use crate::history::Action;

impl<D: Driver> PyTorch<D> {
    /// Coalesces a block that nothing uses any more with its free neighbours and puts it into its pool.
    #[inline(always)]
    pub(super) fn free_block(&mut self, id: BlockId) {
        // Recorded before coalescing, so that the address is the program's.
        if self.history.is_wanted() {
            let block = &self.blocks[id];
            let (addr, requested, shelf) = (block.addr, block.requested, block.shelf);
            self.trace(Action::FreeCompleted, shelf, addr, requested);
        }
        let blocks = &mut self.blocks.slots_mut();
        let block = &mut blocks[id];
        block.state = State::Free;
        let (size, kind, expandable) = (block.size, block.kind, block.is_expandable());
        let gone = merge(blocks, &mut self.pools, &self.ranks, id);
        self.pools.insert_block(blocks, id);
        if !expandable {
            let block = &blocks[id];
            let gained = block.size - size;
            let (splits, bytes) = if block.is_split() {
                (1, block.size)
            } else {
                (0, 0)
            };
            self.stats.inactive_split.change(kind, splits - gone);
            let bytes = bytes.cast_signed() - gained.cast_signed();
            self.stats.inactive_split_bytes.change(kind, bytes);
        }
    }

    /// Merges a block with its neighbours in the same state.
    pub(super) fn merge_with_neighbours(&mut self, id: BlockId) {
        merge(
            &mut self.blocks.slots_mut(),
            &mut self.pools,
            &self.ranks,
            id,
        );
    }
}

/// Merges a block with its neighbours in the same state, free or unmapped, which leave their shelf. Returns how
/// many these were.
#[inline(always)]
fn merge(blocks: &mut SlotsMut<'_, Block>, pools: &mut Pools, ranks: &Ranks, id: BlockId) -> i64 {
    let Block {
        mut addr,
        mut size,
        mut rank,
        state,
        mut prev,
        mut next,
        ..
    } = blocks[id];
    let shelf = &mut pools[blocks[id].shelf];
    let mut gone = 0;
    if let Some(before) = prev
        && blocks[before].state == state
    {
        gone += 1;
        shelf.remove(blocks.slots(), before);
        blocks.remove(before);
        let merged = &blocks[before];
        rank = ranks.of_moved(rank, addr, merged.addr);
        addr = merged.addr;
        size += merged.size;
        prev = merged.prev;
        if let Some(prev) = prev {
            blocks[prev].next = Some(id);
        }
    }
    if let Some(after) = next
        && blocks[after].state == state
    {
        gone += 1;
        shelf.remove(blocks.slots(), after);
        blocks.remove(after);
        let merged = &blocks[after];
        size += merged.size;
        next = merged.next;
        if let Some(next) = next {
            blocks[next].prev = Some(id);
        }
    }
    let block = &mut blocks[id];
    (block.addr, block.size, block.rank) = (addr, size, rank);
    (block.prev, block.next) = (prev, next);
    gone
}
