//! Reports the state in the form of PyTorch's snapshots.
//!
//! Source: PyTorch 2.11, `snapshot`.

use super::block::Block;
use super::{BlockId, PyTorch};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::history::Action;
use crate::mempool::MempoolId;
use crate::snapshot::{BlockInfo, BlockState, SegmentInfo, Snapshot};

impl<D: Driver> PyTorch<D> {
    /// All reserved memory by address. Each mapped run of an expandable segment is a separate segment.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let heads = self.blocks.iter().filter(|(_, block)| self.is_head(block));
        let mut segments: Vec<SegmentInfo> = heads.map(|(id, _)| self.segment_info(id)).collect();
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// Takes a snapshot. This adds an entry to the history, which the next snapshot shows.
    pub fn snapshot(&mut self) -> Snapshot {
        let device_traces = vec![self.history.entries().copied().collect()];
        Snapshot {
            segments: self.observed_segments(MempoolId::DEFAULT),
            device_traces,
            entry_pools: vec![self.history.pools()],
            allocator_settings: self.settings.clone(),
        }
    }

    /// The segments of a private pool, or all for [`MempoolId::DEFAULT`], like [`Self::segments`]. This adds an
    /// entry to the history.
    pub fn observed_segments(&mut self, pool: MempoolId) -> Vec<SegmentInfo> {
        let mut segments = self.segments();
        segments.retain(|segment| pool == MempoolId::DEFAULT || segment.pool == pool);
        let active = segments.iter().map(SegmentInfo::active_size).sum();
        let (addr, stream) = (DeviceAddr::NULL, StreamId::DEFAULT);
        self.record(Action::Snapshot, addr, active, stream, pool);
        segments
    }

    /// The mapped blocks from `head` on.
    pub(super) fn mapped_run(&self, head: BlockId) -> impl Iterator<Item = BlockId> {
        std::iter::successors(Some(head), |&id| self.blocks[id].next)
            .take_while(|&id| self.blocks[id].is_mapped())
    }

    fn is_head(&self, block: &Block) -> bool {
        block.is_mapped() && block.prev.is_none_or(|prev| !self.blocks[prev].is_mapped())
    }

    fn segment_info(&self, head: BlockId) -> SegmentInfo {
        let block = &self.blocks[head];
        let shelf = &self.pools[block.shelf];
        SegmentInfo {
            device: self.device,
            address: block.addr,
            stream: shelf.stream,
            kind: shelf.kind,
            pool: self.pools[shelf.pool].name(),
            is_expandable: block.is_expandable(),
            blocks: self
                .mapped_run(head)
                .map(|id| block_info(&self.blocks[id]))
                .collect(),
        }
    }
}

fn block_info(block: &Block) -> BlockInfo {
    let state = if block.is_allocated() {
        BlockState::ActiveAllocated
    } else if block.is_idle() {
        BlockState::Inactive
    } else {
        BlockState::ActivePendingFree
    };
    BlockInfo::new(block.addr, block.size, block.requested, state)
}
