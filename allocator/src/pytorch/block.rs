//! Blocks, the pieces of a segment.

use super::arena::{Arena, Id};
use super::pages::ExpandableSegment;
use super::stream_set::StreamSet;
use super::{BlockId, PoolId};
use crate::driver::{DeviceAddr, StreamId};

/// A piece of a segment: allocated, waiting, free or unmapped.
///
/// The blocks of a segment form a chain without gaps: `next.addr = addr + size`, and `next.prev` is
/// this block. The first and last blocks have no neighbour on that side.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) addr: DeviceAddr,
    /// Bytes: more than 0 and a multiple of 512. The exception is a request above 2^54 bytes with an
    /// extreme `roundup_power2_divisions`.
    pub(super) size: u64,
    /// Bytes of the last request. A free block keeps the value, as snapshots show; the remainder of a
    /// split keeps that of the original block.
    pub(super) requested: u64,
    /// The stream whose requests it may serve.
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
    /// Its place among free blocks of its size ([`TieBreak`](super::tie_break::TieBreak)).
    pub(super) created: u64,
    /// The block before it in the segment.
    pub(super) prev: Option<BlockId>,
    /// The block after it in the segment.
    pub(super) next: Option<BlockId>,
    /// The expandable segment it is part of.
    pub(super) segment: Option<Id<ExpandableSegment>>,
    /// Whether it is allocated.
    pub(super) allocated: bool,
    /// Whether its addresses are mapped. Only expandable segments have unmapped blocks.
    pub(super) mapped: bool,
    /// Pending events; it becomes free after the last one.
    pub(super) event_count: u32,
    /// Other streams that use it and have no event yet.
    pub(super) stream_uses: Option<Id<StreamSet>>,
    /// The number of searches in the pool when this block became free.
    pub(super) searches_before: u64,
}

impl Block {
    /// Whether it is only part of its segment. In an expandable segment, unmapped neighbours count.
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    /// Whether neither the program nor a stream uses it.
    pub(super) fn is_idle(&self) -> bool {
        !self.allocated && self.event_count == 0 && self.stream_uses.is_none()
    }

    /// Whether it is part of an expandable segment.
    pub(super) fn is_expandable(&self) -> bool {
        self.segment.is_some()
    }

    /// The end address.
    pub(super) fn end(&self) -> DeviceAddr {
        self.addr.offset(self.size)
    }

    /// Creates an idle, unlinked block for a part of this block.
    pub(super) fn part(&self, addr: DeviceAddr, size: u64) -> Self {
        Self {
            mapped: self.mapped,
            created: self.created,
            ..Self::whole_segment(addr, size, self.stream, self.pool, self.segment)
        }
    }

    /// Creates a block that covers a whole segment.
    pub(super) fn whole_segment(
        addr: DeviceAddr,
        size: u64,
        stream: StreamId,
        pool: PoolId,
        segment: Option<Id<ExpandableSegment>>,
    ) -> Self {
        Self {
            addr,
            size,
            requested: 0,
            stream,
            pool,
            created: 0,
            prev: None,
            next: None,
            segment,
            allocated: false,
            mapped: segment.is_none(),
            event_count: 0,
            stream_uses: None,
            searches_before: 0,
        }
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
        block.size + tail.filter(|t| !t.mapped).map_or(0, |t| t.size)
    }
}
