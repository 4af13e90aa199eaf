//! The tails of blocks whose size nothing tells, found by trying.
//!
//! A large block keeps what is left over of it if that is no more than 1 MiB. Of a block that lived
//! before the first entry the tail is known if anything began behind it. If nothing did, the free range
//! behind it was never used while the block lived, for it is used from its front. So where the replay
//! does use it, the range was too small in truth: the tail was at least large enough for that. The least
//! tail of which this is true everywhere is as good as the true one, since all that it decides is that
//! the range is not used.

use std::collections::BTreeMap;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size::{self, MIN_BLOCK, SMALL_LIMIT};
use coalesce_alloc::snapshot::SegmentInfo;

use super::replay::Plan;

/// Bytes that blocks have more than is known, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Tails(BTreeMap<DeviceAddr, u64>);

impl Tails {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives the blocks of a segment their tails.
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

    /// Makes the tail longer that the range was before in which a malloc landed that should not have.
    /// `ours` are its entries, `segments` the state after it, and `call` the index of its first recorded
    /// entry. Whether there was one.
    pub(super) fn lengthen(
        &mut self,
        plan: &Plan<'_>,
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
        let past = plan.recording.entries[..call].iter();
        let mut past = past.filter(|entry| entry.addr == before);
        let lives_on = past.all(|entry| entry.action != Action::FreeCompleted);
        let wanted = size::round_size(placed.size, &plan.settings);
        let too_much = wanted.and_then(|wanted| range.checked_sub(wanted));
        let (true, Some(too_much)) = (lives_on && plan.start.guessed.contains(&before), too_much)
        else {
            return false;
        };
        let tail = self.0.entry(before).or_default();
        *tail = tail.saturating_add(too_much).saturating_add(MIN_BLOCK);
        *tail <= SMALL_LIMIT
    }
}

/// The block before the one at `addr`, and how large the free range was that this one was taken from.
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
