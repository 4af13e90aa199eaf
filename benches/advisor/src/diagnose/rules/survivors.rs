//! Few tensors that live on in segments that are otherwise free, and keep them from being given back.
//!
//! **Criterion.** When a request first failed, or else when the most was held, blocks in use fill at
//! most [`FULL_PERCENT`] % of some segments of large blocks; and what is free in those segments is
//! [`PINNED_PERCENT`] % of all that is held. Expandable segments do not count: what is free in them
//! serves neighbours of any size.
//!
//! **Why so.** A segment goes back to the device only when all of it is free (PyTorch 2.11,
//! `release_blocks`), and free memory of different segments never joins. At both moments a request needed
//! more than any free block had, so what lay free was of no use to it.

use super::super::Finding;
use super::super::evidence::{Evidence, Moment};
use super::super::relief::Relief;
use super::super::words::{count, percent, size};
use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

/// A segment that is fuller does its work.
const FULL_PERCENT: u64 = 25;
/// What is free in segments at the peak for other reasons is seldom less.
const PINNED_PERCENT: u64 = 10;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.first_oom.as_ref().unwrap_or(&evidence.peak);
    let is_pinned = |segment: &&SegmentInfo| is_pinned(segment);
    let pinned: Vec<&SegmentInfo> = moment.segments.iter().filter(is_pinned).collect();
    let free = pinned.iter().map(|segment| free_in(segment)).sum::<u64>();
    let held: u64 = moment.segments.iter().map(SegmentInfo::total_size).sum();
    if free < held / 100 * PINNED_PERCENT || !evidence.is_worth_a_word(free) {
        return None;
    }
    let survivors = |segment: &SegmentInfo| segment.blocks.iter().filter(|b| b.is_active()).count();
    let number: usize = pinned.iter().map(|segment| survivors(segment)).sum();
    let bytes: u64 = pinned.iter().map(|segment| segment.active_size()).sum();
    let shares = shares(moment, &pinned);
    let mut seen = vec![format!(
        "{}, {} in use, hold {} of segments, {} of all that is held when {}",
        count(number as u64, "block"),
        size(bytes),
        size(free + bytes),
        percent(free + bytes, held),
        match evidence.first_oom {
            Some(_) => "the first request fails",
            None => "the most is held",
        },
    )];
    let mut remedy =
        "make what lives long before what is large and short-lived, or copy it (tensor.clone()) \
                      once the rest is gone"
            .to_owned();
    let expandable = evidence.expandable();
    if let Some(relief) = Relief::of(evidence, &expandable) {
        seen.push(relief.sentence);
        remedy.push_str(&format!("; or PYTORCH_CUDA_ALLOC_CONF={expandable}"));
    }
    Some(Finding {
        rule: "survivors",
        headline: format!(
            "{} in use pin {} of free memory in {}",
            size(bytes),
            size(free),
            count(pinned.len() as u64, "segment"),
        ),
        evidence: seen,
        remedy,
        bytes: free,
        stacks: evidence.places(shares.keys().copied(), |index, _| {
            shares.get(&index).copied().unwrap_or(0)
        }),
    })
}

fn is_pinned(segment: &SegmentInfo) -> bool {
    let (active, total) = (segment.active_size(), segment.total_size());
    segment.kind == PoolKind::Large
        && !segment.is_expandable
        && active > 0
        && active <= total / 100 * FULL_PERCENT
}

fn free_in(segment: &SegmentInfo) -> u64 {
    segment.total_size() - segment.active_size()
}

/// What each survivor pins, by its number in the log: the survivors of a segment share what is free in it.
fn shares(moment: &Moment, pinned: &[&SegmentInfo]) -> std::collections::BTreeMap<usize, u64> {
    let of_segment = |segment: &&SegmentInfo| {
        let survivors: Vec<&BlockInfo> = segment.blocks.iter().filter(|b| b.is_active()).collect();
        let share = free_in(segment) / survivors.len().max(1) as u64;
        let numbers = survivors
            .into_iter()
            .filter_map(|block| moment.live.get(&block.address).copied());
        numbers.map(|index| (index, share)).collect::<Vec<_>>()
    };
    pinned.iter().flat_map(of_segment).collect()
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, ROOMY, hold};
    use super::rule;

    /// Ten segments of five blocks each, of which the first `kept` stay, and then a large request.
    fn leave(program: &mut Program<'_>, kept: usize) {
        let blocks: Vec<_> = (0..50)
            .map(|_| program.alloc(4 * MIB, "statistic"))
            .collect();
        for (index, block) in blocks.into_iter().enumerate() {
            if index % 5 < kept {
                program.hold(block);
            } else {
                program.free(block);
            }
        }
        hold(program, 1, 30 * MIB);
    }

    #[test]
    fn one_in_each_segment() {
        let found = ROOMY.find(rule, |program| leave(program, 1)).unwrap();
        assert_eq!(found.bytes, 10 * 16 * MIB);
        let place = &found.stacks[0];
        assert_eq!((&place.tag[..], place.allocations), ("statistic", 10));
        assert_eq!(place.bytes, found.bytes);
    }

    #[test]
    fn segments_that_are_free_or_half_full() {
        assert_eq!(ROOMY.find(rule, |program| leave(program, 0)), None);
        assert_eq!(ROOMY.find(rule, |program| leave(program, 3)), None);
    }
}
