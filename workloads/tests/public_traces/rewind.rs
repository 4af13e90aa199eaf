//! The state at the start of a history, from the state at its end.
//!
//! Undoing an allocation makes its block free; undoing a free takes a block out of a free range.
//! Which free ranges there are then is certain, since free neighbours are always one. How large the
//! freed block was is not: of a large block up to 1 MiB may have been left uncut, and nobody
//! recorded it.

use std::collections::BTreeMap;

use allocator::driver::DeviceAddr;
use allocator::history::{Action, TraceEntry};
use allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};
use allocator::stats::PoolKind;

const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    requested: u64,
    active: bool,
}

/// A segment with its blocks by address; neighbouring free blocks are one.
#[derive(Clone, Debug)]
struct Segment {
    info: SegmentInfo,
    blocks: BTreeMap<u64, Block>,
}

/// The segments before the first entry, given those after the last.
pub fn rewind(last: &[SegmentInfo], entries: &[TraceEntry]) -> Vec<SegmentInfo> {
    let mut segments: BTreeMap<u64, Segment> = last
        .iter()
        .map(|info| (info.address.0, Segment::new(info)))
        .collect();
    for (index, entry) in entries.iter().enumerate().rev() {
        let (addr, size) = (entry.addr.0, entry.size);
        match entry.action {
            Action::Alloc => segment_at(&mut segments, addr).undo_alloc(addr),
            Action::FreeCompleted => {
                segment_at(&mut segments, addr).undo_free(addr, size, &entries[..index]);
            }
            Action::SegmentAlloc => {
                let gone = segments.remove(&addr).expect("a segment that was taken");
                let free = gone.blocks.values().all(|block| !block.active);
                assert!(
                    free && gone.blocks.len() == 1,
                    "a new segment is wholly free"
                );
            }
            Action::FreeRequested | Action::Snapshot => {}
            other => panic!("no recording has a {}", other.name()),
        }
    }
    segments.into_values().map(Segment::into_info).collect()
}

fn segment_at(segments: &mut BTreeMap<u64, Segment>, addr: u64) -> &mut Segment {
    let (_, segment) = segments.range_mut(..=addr).next_back().expect("a segment");
    segment
}

impl Segment {
    fn new(info: &SegmentInfo) -> Self {
        let blocks = info.blocks.iter().map(|block| {
            let active = block.state != BlockState::Inactive;
            let (size, requested) = (block.size, block.requested_size);
            let block_now = Block {
                size,
                requested,
                active,
            };
            (block.address.0, block_now)
        });
        Self {
            info: info.clone(),
            blocks: blocks.collect(),
        }
    }

    fn into_info(self) -> SegmentInfo {
        let blocks = self.blocks.iter().map(|(&addr, block)| {
            let state = if block.active {
                BlockState::ActiveAllocated
            } else {
                BlockState::Inactive
            };
            BlockInfo::new(DeviceAddr(addr), block.size, block.requested, state)
        });
        SegmentInfo {
            blocks: blocks.collect(),
            ..self.info.clone()
        }
    }

    /// The block becomes free, and one with its free neighbours.
    fn undo_alloc(&mut self, addr: u64) {
        let block = self
            .blocks
            .get_mut(&addr)
            .expect("a block that was allocated");
        assert!(block.active);
        block.active = false;
        block.requested = 0;
        let end = addr + block.size;
        if let Some(&next) = self.blocks.get(&end).filter(|next| !next.active) {
            self.blocks.remove(&end);
            self.blocks.get_mut(&addr).unwrap().size += next.size;
        }
        let size = self.blocks[&addr].size;
        if let Some((_, before)) = self.blocks.range_mut(..addr).next_back()
            && !before.active
        {
            before.size += size;
            self.blocks.remove(&addr);
        }
    }

    /// A block for `requested` bytes is taken out of the free range around `addr`; `earlier` are the
    /// entries before its free.
    fn undo_free(&mut self, addr: u64, requested: u64, earlier: &[TraceEntry]) {
        let (&start, &range) = self
            .blocks
            .range(..=addr)
            .next_back()
            .expect("a free range");
        let end = start + range.size;
        let rounded = requested.next_multiple_of(512);
        assert!(
            !range.active && addr + rounded <= end,
            "freed memory is free"
        );
        let size = if self.info.kind == PoolKind::Small || self.info.is_expandable {
            rounded
        } else {
            large_block_size(addr, rounded, end, earlier)
        };
        let free = |size: u64| Block {
            size,
            requested: 0,
            active: false,
        };
        self.blocks.remove(&start);
        if addr > start {
            self.blocks.insert(start, free(addr - start));
        }
        let block = Block {
            size,
            requested,
            active: true,
        };
        self.blocks.insert(addr, block);
        if addr + size < end {
            self.blocks.insert(addr + size, free(end - addr - size));
        }
    }
}

/// How large the block at `addr` was, in a free range that ends at `end`.
///
/// Every block of a large pool has more than 1 MiB, for less is never cut off. So if no more than
/// that is left behind it, that was part of it. Otherwise, if another block began less than that
/// behind it while it lived, it ended there. Otherwise nothing tells, and it is taken to have been
/// cut.
fn large_block_size(addr: u64, rounded: u64, end: u64, earlier: &[TraceEntry]) -> u64 {
    let cut = addr + rounded;
    if end - cut <= MIB {
        return end - addr;
    }
    let lived = earlier
        .iter()
        .rev()
        .take_while(|entry| entry.addr.0 != addr || entry.action != Action::Alloc);
    let neighbours = lived
        .filter(|entry| matches!(entry.action, Action::Alloc | Action::FreeCompleted))
        .map(|entry| entry.addr.0)
        .filter(|&start| start > cut && start <= cut + MIB);
    neighbours.min().map_or(rounded, |start| start - addr)
}
