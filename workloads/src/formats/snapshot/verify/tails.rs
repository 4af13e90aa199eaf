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
        let mut past = prepared.recording.entries[..call]
            .iter()
            .filter(|entry| entry.addr == before);
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
    use coalesce_alloc::release::Release;

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{entry, number, recording, segment, shown};

    #[test]
    fn a_tail_moves_the_start_of_the_free_block_behind() {
        cases::check("src/formats/snapshot/cases/tails.txt", |text| {
            let words: Vec<&str> = text.splitn(3, ' ').collect();
            let mut segment = segment(words[2]);
            let tail = (DeviceAddr(number(words[0])), number(words[1]));
            Tails([tail].into()).add_to(&mut segment);
            let ends = segment.blocks.windows(2);
            assert!(
                ends.into_iter()
                    .all(|two| two[0].address.offset(two[0].size) == two[1].address)
            );
            shown(&segment, &[])
        });
    }

    #[test]
    fn a_range_is_a_block_with_the_free_one_behind() {
        let free = [segment("1000 | 100 50 -20")];
        let of = |addr| neighbourhood(DeviceAddr(addr), &free);
        assert_eq!(of(1100), Some((DeviceAddr(1000), 70)));
        assert_eq!(of(1150), Some((DeviceAddr(1100), 20)));
        // The first block has none before it, and in the middle of one none begins.
        assert_eq!((of(1000), of(1120)), (None, None));
        let used = neighbourhood(DeviceAddr(1100), &[segment("1000 | 100 50 20")]);
        assert_eq!(used, Some((DeviceAddr(1000), 50)));
    }

    const MIB: u64 = 1 << 20;

    /// A block of 4 MiB before the first entry, whose free completes in the recording or not, and a request of `size`
    /// bytes right behind it, by mistake. The tail after it was lengthened from `before`; none if it cannot be the cause.
    fn lengthened(size: u64, is_freed: bool, before: u64) -> Option<u64> {
        let free = "free_requested 100M 4M\nfree_completed 100M 4M\n";
        let (first, last) = if is_freed { (free, "") } else { ("", free) };
        let recording = recording(&format!(
            "alloc 130M 1M\n{first}alloc 131M {size}\n{last}segment 100M | -20M\nsegment 130M | 1M 19M/{size}"
        ));
        let call = if is_freed { 3 } else { 1 };
        let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
        let base = DeviceAddr(100 * MIB);
        assert_eq!(prepared.start.guessed, [base]);
        // The replay has put it right behind the block, into a free range of 2 MiB.
        let rounded = size.next_multiple_of(512);
        let rest = 2 * MIB - rounded;
        let replayed = [segment(&format!("100M | 4M {rounded}/{size} -{rest} 14M"))];
        let mut tails = Tails::default();
        if before > 0 {
            tails.0.insert(base, before);
        }
        let ours = [entry(Action::Alloc, 104 * MIB, size)];
        let is_cause = tails.lengthen(&prepared, &ours, &replayed, call);
        let is_longer = tails.lengthen(&prepared, &[], &replayed, call);
        assert!(!is_longer, "no allocation");
        is_cause.then(|| tails.0[&base])
    }

    #[test]
    fn a_tail_is_just_long_enough_to_keep_the_request_out() {
        // A request of 2 MiB would fit exactly; one of 1.5 MiB needs the tail to be half a MiB longer.
        assert_eq!(lengthened(2 * MIB, false, 0), Some(512));
        assert_eq!(lengthened(2 * MIB - 1, false, 0), Some(512));
        assert_eq!(lengthened(3 * MIB / 2, false, 0), Some(MIB / 2 + 512));
        // One that was found before is lengthened, to 1 MiB at most.
        assert_eq!(lengthened(2 * MIB, false, MIB - 512), Some(MIB));
        assert_eq!(lengthened(2 * MIB, false, MIB), None);
        assert_eq!(lengthened(MIB + 512, false, 0), Some(MIB));
        assert_eq!(lengthened(MIB, false, 0), None);
        // The block is gone when the request is made.
        assert_eq!(lengthened(2 * MIB, true, 0), None);
    }
}
