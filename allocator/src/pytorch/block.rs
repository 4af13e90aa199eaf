//! Blocks, the pieces of a segment.

use super::arena::{Arena, Id, Slots};
use super::pages::ExpandableSegment;
use super::stream_set::Uses;
use super::{BlockId, ShelfId};
use crate::driver::DeviceAddr;
use crate::stats::PoolKind;

/// What a block is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The program uses it.
    Allocated,
    /// The program has freed it, but other streams still use it.
    Waiting,
    /// Nothing uses it.
    Free,
    /// Its addresses are not mapped. Only expandable segments have such blocks.
    Unmapped,
}

/// A piece of a segment.
///
/// The blocks of a segment form a chain without gaps: `next.addr = addr + size`, and `next.prev` is
/// this block. The first and last blocks have no neighbour on that side.
///
/// A block fits into a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block {
    pub(super) addr: DeviceAddr,
    /// Bytes: more than 0 and a multiple of 512. The exception is a request above 2^54 bytes with an
    /// extreme `roundup_power2_divisions`.
    pub(super) size: u64,
    /// Bytes of the last request. A free block keeps the value, as snapshots show; the remainder of a
    /// split keeps that of the original block.
    pub(super) requested: u64,
    /// The pool it belongs to, and the stream whose requests it may serve.
    pub(super) shelf: ShelfId,
    /// Its place among free blocks of its size ([`TieBreak`](super::tie_break::TieBreak)).
    pub(super) rank: u64,
    /// The block before it in the segment.
    pub(super) prev: Option<BlockId>,
    /// The block after it in the segment.
    pub(super) next: Option<BlockId>,
    /// The expandable segment it is part of.
    pub(super) segment: Option<Id<ExpandableSegment>>,
    pub(super) state: State,
    /// The kind of its pool.
    pub(super) kind: PoolKind,
    /// Other streams that use it; it becomes free when they have finished.
    pub(super) uses: Option<Id<Uses>>,
    /// The number of searches when this block became free ([`Pools::searches`](super::pool::Pools::searches)).
    pub(super) searches_before: u64,
}

/// Blocks by id.
pub(super) type Blocks<'a> = Slots<'a, Block>;

impl Block {
    /// Whether it is only part of its segment. In an expandable segment, unmapped neighbours count.
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    /// Whether neither the program nor a stream uses it.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Free | State::Unmapped)
    }

    /// Whether the program uses it.
    pub(super) fn is_allocated(&self) -> bool {
        self.state == State::Allocated
    }

    /// Whether its addresses are mapped.
    pub(super) fn is_mapped(&self) -> bool {
        self.state != State::Unmapped
    }

    /// Whether it is part of an expandable segment.
    pub(super) fn is_expandable(&self) -> bool {
        self.segment.is_some()
    }

    /// The end address.
    pub(super) fn end(&self) -> DeviceAddr {
        self.addr.offset(self.size)
    }

    /// Creates an idle, unlinked block for a part of this block. Its rank is left to the caller.
    pub(super) fn part(&self, addr: DeviceAddr, size: u64) -> Self {
        Self {
            state: match self.state {
                State::Unmapped => State::Unmapped,
                _ => State::Free,
            },
            ..Self::whole_segment(addr, size, self.shelf, self.kind, self.segment)
        }
    }

    /// Creates a block that covers a whole segment.
    pub(super) fn whole_segment(
        addr: DeviceAddr,
        size: u64,
        shelf: ShelfId,
        kind: PoolKind,
        segment: Option<Id<ExpandableSegment>>,
    ) -> Self {
        Self {
            addr,
            size,
            requested: 0,
            shelf,
            kind,
            rank: 0,
            prev: None,
            next: None,
            segment,
            state: match segment {
                None => State::Free,
                Some(_) => State::Unmapped,
            },
            uses: None,
            searches_before: 0,
        }
    }

    /// Creates a block for tests of containers.
    #[cfg(test)]
    pub(super) fn of_size(addr: DeviceAddr, size: u64) -> Self {
        Self::whole_segment(addr, size, ShelfId::FIRST, PoolKind::Small, None)
    }
}

impl Arena<Block> {
    /// Links `id` between two neighbours.
    pub(super) fn link(&mut self, id: BlockId, prev: Option<BlockId>, next: Option<BlockId>) {
        self[id].prev = prev;
        self[id].next = next;
        if let Some(prev) = prev {
            self[prev].next = Some(id);
        }
        if let Some(next) = next {
            self[next].prev = Some(id);
        }
    }

    /// The size of a block plus the unmapped range after it, into which it can grow.
    pub(super) fn size_with_unmapped_tail(&self, id: BlockId) -> u64 {
        let block = &self[id];
        let tail = block.next.map(|next| &self[next]);
        block.size + tail.filter(|t| !t.is_mapped()).map_or(0, |t| t.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_cache_line() {
        assert_eq!(size_of::<Block>(), 64);
    }
}
