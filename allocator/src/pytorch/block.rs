//! Blocks: what a segment consists of.

use super::arena::{Arena, Id};
use super::pages::ExpandableSegment;
use super::stream_set::StreamSet;
use super::{BlockId, PoolId};
use crate::driver::{DeviceAddr, StreamId};

/// A piece of a segment: handed out, free, or not even mapped.
///
/// The blocks of a segment form a chain without gaps: `next.addr = addr + size`, and `next.prev`
/// is this block. The ends have no neighbour.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) addr: DeviceAddr,
    /// Bytes: more than 0, and a multiple of 512, unless more than 2^54 were asked for with absurdly
    /// many `roundup_power2_divisions`.
    pub(super) size: u64,
    /// Bytes its last user asked for. A free block keeps the figure, as snapshots show; what is
    /// left over of a split block has that of the block.
    pub(super) requested: u64,
    /// The stream whose requests it may serve.
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
    /// The block before it in the segment.
    pub(super) prev: Option<BlockId>,
    /// The block after it in the segment.
    pub(super) next: Option<BlockId>,
    /// The expandable segment it is part of.
    pub(super) segment: Option<Id<ExpandableSegment>>,
    /// Whether it is handed out.
    pub(super) allocated: bool,
    /// Whether there is memory behind its addresses; only expandable segments have blocks without.
    pub(super) mapped: bool,
    /// Events to wait for before it is free.
    pub(super) event_count: u32,
    /// Other streams that use it and for which there is no event yet; `None` for none.
    pub(super) stream_uses: Option<Id<StreamSet>>,
    /// How many searches the pool had seen when this block became free.
    pub(super) searches_before: u64,
}

impl Block {
    /// Whether it is only a part of its segment. In an expandable segment an unmapped neighbour is
    /// a neighbour.
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    /// Whether nobody uses it: not the program, and no stream either.
    pub(super) fn is_idle(&self) -> bool {
        !self.allocated && self.event_count == 0 && self.stream_uses.is_none()
    }

    /// Whether it is part of an expandable segment.
    pub(super) fn is_expandable(&self) -> bool {
        self.segment.is_some()
    }

    /// The address behind its last byte.
    pub(super) fn end(&self) -> DeviceAddr {
        self.addr.offset(self.size)
    }

    /// An idle block of the same segment, for a part of this one; linked to nothing yet.
    pub(super) fn part(&self, addr: DeviceAddr, size: u64) -> Self {
        Self {
            mapped: self.mapped,
            ..Self::whole_segment(addr, size, self.stream, self.pool, self.segment)
        }
    }

    /// A block that is a whole segment.
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
    /// Links `id` in between two neighbours.
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

    /// The size of a block together with the unmapped range behind it: what it can grow to.
    pub(super) fn size_with_unmapped_tail(&self, id: BlockId) -> u64 {
        let block = &self[id];
        let tail = block.next.map(|next| &self[next]);
        block.size + tail.filter(|t| !t.mapped).map_or(0, |t| t.size)
    }
}
