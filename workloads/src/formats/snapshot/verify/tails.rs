//! The unknown tails of blocks, found by trial.
//!
//! A large block keeps a remainder of up to 1 MiB behind the request, its tail. For a block allocated before
//! the first entry, the tail is known if another block began behind it. Otherwise the free range behind it
//! was never used while the block was live, because ranges are used from their start. If the replay does
//! use the range, it must have been too small in reality, so the tail is at least large enough to prevent
//! that. The smallest such tail is as good as the real one: it only decides that the range is not used.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size::{self, MIN_BLOCK, SMALL_LIMIT};
use coalesce_alloc::snapshot::SegmentInfo;

use super::prepared::Prepared;

/// Bytes to add to blocks, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Tails(BTreeMap<DeviceAddr, u64>);

impl Tails {
    /// The number of tails.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the tails to the blocks of a segment.
    pub(super) fn add_to(&self, segment: &mut SegmentInfo) {
        for index in 1..segment.blocks.len() {
            let [block, behind] = &mut segment.blocks[index - 1..=index] else {
                continue;
            };
            if let Some(&bytes) = self.0.get(&block.address)
                && !behind.is_active()
                && bytes < behind.size
            {
                block.size += bytes;
                behind.address = behind.address.offset(bytes);
                behind.size -= bytes;
            }
        }
    }

    /// Lengthens the tail in front of the range that a malloc used by mistake. `ours` are the entries of
    /// the malloc, `segments` the state after it, and `call` is the index of its first recorded entry.
    /// Returns whether such a tail exists.
    pub(super) fn lengthen(
        &mut self,
        prepared: &Prepared<'_>,
        ours: &[TraceEntry],
        segments: &[SegmentInfo],
        call: usize,
    ) -> bool {
        let Some(placed) = ours.last().filter(|last| last.action == Action::Alloc) else {
            return false;
        };
        let Some((before, range)) = neighbourhood(placed.addr, segments) else {
            return false;
        };
        let past = prepared.recording.entries[..call].iter();
        let mut past = past.filter(|entry| entry.addr == before);
        let lives_on = past.all(|entry| entry.action != Action::FreeCompleted);
        let wanted = size::round_size(placed.size, &prepared.settings);
        let too_much = wanted.and_then(|wanted| range.checked_sub(wanted));
        let (true, Some(too_much)) = (
            lives_on && prepared.start.guessed.contains(&before),
            too_much,
        ) else {
            return false;
        };
        let tail = self.0.entry(before).or_default();
        *tail = tail.saturating_add(too_much).saturating_add(MIN_BLOCK);
        *tail <= SMALL_LIMIT
    }
}

/// The block before the one at `addr`, and the size of the free range that this one was taken from.
fn neighbourhood(addr: DeviceAddr, segments: &[SegmentInfo]) -> Option<(DeviceAddr, u64)> {
    let blocks = segments.iter().map(|segment| &segment.blocks);
    let (blocks, index) = blocks
        .filter_map(|blocks| {
            let index = blocks.binary_search_by_key(&addr, |block| block.address);
            Some((blocks, index.ok()?))
        })
        .next()?;
    let before = blocks.get(index.checked_sub(1)?)?;
    let behind = blocks.get(index + 1).filter(|block| !block.is_active());
    let rest = behind.map_or(0, |behind| behind.size);
    Some((before.address, blocks[index].size + rest))
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::MempoolId;
    use coalesce_alloc::driver::StreamId;
    use coalesce_alloc::snapshot::{BlockInfo, BlockState};
    use coalesce_alloc::stats::PoolKind;

    use super::*;

    /// A segment of blocks of some bytes at 1000.
    fn segment(blocks: &[(u64, BlockState)]) -> SegmentInfo {
        let mut address = DeviceAddr(1000);
        let mut block = |&(size, state): &(u64, BlockState)| {
            let block = BlockInfo::new(address, size, size, state);
            address = block.address.offset(size);
            block
        };
        SegmentInfo {
            device: 0,
            address: DeviceAddr(1000),
            stream: StreamId::DEFAULT,
            kind: PoolKind::Large,
            pool: MempoolId::DEFAULT,
            is_expandable: false,
            blocks: blocks.iter().map(&mut block).collect(),
        }
    }

    fn with_tail(addr: u64, bytes: u64, blocks: &[(u64, BlockState)]) -> Vec<(u64, u64)> {
        let mut segment = segment(blocks);
        Tails([(DeviceAddr(addr), bytes)].into()).add_to(&mut segment);
        let blocks = segment.blocks.iter();
        blocks.map(|block| (block.address.0, block.size)).collect()
    }

    #[test]
    fn a_tail_moves_the_start_of_the_free_block_behind() {
        use BlockState::{ActiveAllocated, ActivePendingFree, Inactive};

        let blocks = [
            (100, ActiveAllocated),
            (50, Inactive),
            (20, ActiveAllocated),
        ];
        let unchanged = [(1000, 100), (1100, 50), (1150, 20)];
        let longer = [(1000, 130), (1130, 20), (1150, 20)];
        assert_eq!(with_tail(1000, 30, &blocks), longer);
        assert_eq!(with_tail(1000, 49, &blocks)[1], (1149, 1));
        // The free block would be gone, the block behind is in use, there is none, or none begins there.
        for (addr, bytes) in [(1000, 50), (1000, 60), (1100, 10), (1150, 10), (1001, 10)] {
            assert_eq!(with_tail(addr, bytes, &blocks), unchanged, "{addr} {bytes}");
        }
        let pending = [(100, ActiveAllocated), (50, ActivePendingFree)];
        assert_eq!(with_tail(1000, 30, &pending), unchanged[..2]);
        let last = [
            (20, ActiveAllocated),
            (100, ActiveAllocated),
            (50, Inactive),
        ];
        assert_eq!(
            with_tail(1020, 10, &last),
            [(1000, 20), (1020, 110), (1130, 40)]
        );
    }

    #[test]
    fn a_range_is_a_block_with_the_free_one_behind() {
        use BlockState::{ActiveAllocated, Inactive};

        let segments = [segment(&[
            (100, ActiveAllocated),
            (50, ActiveAllocated),
            (20, Inactive),
        ])];
        let of = |addr| {
            let found = neighbourhood(DeviceAddr(addr), &segments)?;
            Some((found.0.0, found.1))
        };
        assert_eq!(of(1100), Some((1000, 70)));
        assert_eq!(of(1150), Some((1100, 20)));
        // The first block has none before it, and in the middle of one none begins.
        assert_eq!((of(1000), of(1120)), (None, None));
        let used = [segment(&[
            (100, ActiveAllocated),
            (50, ActiveAllocated),
            (20, ActiveAllocated),
        ])];
        assert_eq!(
            neighbourhood(DeviceAddr(1100), &used),
            Some((DeviceAddr(1000), 50))
        );
    }
}
