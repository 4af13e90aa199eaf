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
