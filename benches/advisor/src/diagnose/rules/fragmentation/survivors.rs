//! A few live tensors keep segments reserved that are otherwise free.
//!
//! **Criterion.** At the first failed request, or else at the peak, active blocks fill at most
//! [`FULL_PERCENT`] % of some segments of the large pool, and the free memory in these segments is at least
//! [`PINNED_PERCENT`] % of reserved memory. Expandable segments do not count, because their free memory
//! serves requests of any size.
//!
//! **Reason.** A segment is returned to the device only when all of it is free (PyTorch's
//! `release_blocks`), and free memory of different segments never coalesces. At both moments a request
//! needed more than any free block had, so this free memory was of no use to it.

use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::text::{amount, count, percent_of};

use crate::diagnose::evidence::Moment;
use crate::diagnose::improvement::Improvement;
use crate::diagnose::{Evidence, Finding};

/// Fuller segments are in normal use.
const FULL_PERCENT: u64 = 25;
/// Segments usually have up to this share free for other reasons.
const PINNED_PERCENT: u64 = 10;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.failure.as_ref().unwrap_or(&evidence.peak);
    let is_pinned = |segment: &&SegmentInfo| is_pinned(segment);
    let pinned: Vec<&SegmentInfo> = moment.segments.iter().filter(is_pinned).collect();
    let free = pinned.iter().map(|segment| free_in(segment)).sum::<u64>();
    let reserved: u64 = moment.segments.iter().map(SegmentInfo::total_size).sum();
    if free < reserved / 100 * PINNED_PERCENT || !evidence.is_significant(free) {
        return None;
    }
    let survivors = |segment: &SegmentInfo| segment.blocks.iter().filter(|b| b.is_active()).count();
    let number: usize = pinned.iter().map(|segment| survivors(segment)).sum();
    let bytes: u64 = pinned.iter().map(|segment| segment.active_size()).sum();
    let mut facts = vec![format!(
        "{} ({}) {} segments of {} reserved, {} of all reserved memory {}",
        count(number as u64, "active block"),
        amount(bytes),
        if number == 1 { "keeps" } else { "keep" },
        amount(free + bytes),
        percent_of(free + bytes, reserved),
        match evidence.failure {
            Some(_) => "when the first request fails",
            None => "at the peak",
        },
    )];
    let remedy = "Allocate long-lived tensors before large short-lived ones, or copy them \
                      (tensor.clone()) after the large ones are freed"
        .to_owned();
    let expandable = evidence.expandable();
    let mut conf = None;
    if let Some(improvement) = Improvement::of(evidence, &expandable) {
        facts.push(improvement.sentence);
        conf = Some(expandable);
    }
    Some(Finding {
        rule: "survivors",
        headline: format!(
            "Active blocks of {} keep {} of free memory in {} from being returned",
            amount(bytes),
            amount(free),
            count(pinned.len() as u64, "segment"),
        ),
        evidence: facts,
        remedy,
        conf,
        bytes: free,
        stacks: evidence.call_sites(shares(moment, &pinned)),
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

/// The bytes that each survivor keeps reserved, with its index in the log. The survivors of a segment share
/// its free memory equally.
fn shares(moment: &Moment, pinned: &[&SegmentInfo]) -> Vec<(usize, u64)> {
    let mut shares = Vec::new();
    for segment in pinned {
        let survivors: Vec<&BlockInfo> = segment.blocks.iter().filter(|b| b.is_active()).collect();
        let share = free_in(segment) / survivors.len().max(1) as u64;
        let indices = survivors
            .iter()
            .filter_map(|block| moment.live.get(&block.address));
        shares.extend(indices.map(|&index| (index, share)));
    }
    shares
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines};

    /// Keeps the first `kept` of the five blocks in each of ten segments, and then requests a large one.
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
    fn one_block_stays_in_each_segment() {
        let found = ROOMY.find(rule, |program| leave(program, 1)).unwrap();
        assert_eq!(found.bytes, 10 * 16 * MIB);
        let place = &found.stacks[0];
        assert_eq!((&place.tag[..], place.allocations), ("statistic", 10));
        assert_eq!(place.bytes, found.bytes);
    }

    #[test]
    fn a_quarter_of_each_segment_is_left() {
        let found = ROOMY.find(rule, |program| {
            let whole: Vec<_> = (0..10).map(|_| program.alloc(50 * MIB, "whole")).collect();
            let mut rest = Vec::new();
            for block in whole {
                program.free(block);
                hold(program, 1, 25 * MIB / 2);
                rest.push(program.alloc(75 * MIB / 2, "rest"));
            }
            program.free_all(rest);
            hold(program, 1, 60 * MIB);
        });
        assert_eq!(found.unwrap().bytes, 10 * 75 * MIB / 2);
    }

    #[test]
    fn segments_are_free_or_half_full() {
        assert_eq!(ROOMY.find(rule, |program| leave(program, 0)), None);
        assert_eq!(ROOMY.find(rule, |program| leave(program, 3)), None);
    }

    /// One tensor of the first sizes stays in each segment, in MiB. Then memory for the last is requested.
    fn leave_in(program: &mut Program<'_>, segments: &[(u64, u64)], held: u64, last: u64) {
        hold(program, 1, held * MIB);
        let mut rest = Vec::new();
        for &(kept, total) in segments {
            program.scratch(total * MIB, "whole");
            hold(program, 1, kept * MIB);
            rest.push(program.alloc((total - kept) * MIB, "rest"));
        }
        program.free_all(rest);
        hold(program, 1, last * MIB);
    }

    #[test]
    fn ten_percent_of_reserved_memory() {
        let find = |held| {
            ROOMY.find(rule, move |program| {
                leave_in(program, &[(4, 24)], held, 76);
            })
        };
        assert_eq!(
            lines(find(100)),
            [
                "1. Active blocks of 4.0 MiB keep 20.0 MiB of free memory in 1 segment from being returned \
                 [survivors]",
                "- 1 active block (4.0 MiB) keeps segments of 24.0 MiB reserved, 12.0 % of all reserved memory at \
                 the peak",
                "- With 'expandable_segments:True', 180.0 MiB is reserved at the peak instead of 200.0 MiB, and \
                 memory is taken from or returned to the device 3 times instead of 3",
                "1 × several: 20.0 MiB",
                "> Allocate long-lived tensors before large short-lived ones, or copy them (tensor.clone()) after \
                 the large ones are freed",
                "20971520 bytes, with 'expandable_segments:True'",
            ]
        );
        assert_eq!(find(102), None, "of 202 MiB");
    }

    #[test]
    fn a_quarter_of_a_segment() {
        let find = |kept| {
            ROOMY.find(rule, move |program| {
                leave_in(program, &[(kept, 100)], 0, 98);
            })
        };
        assert_eq!(find(25).unwrap().bytes, 75 * MIB);
        assert_eq!(find(26), None);
    }

    /// The survivors of a segment share what they keep; the last request finds no room on the device.
    #[test]
    fn survivors_when_a_request_fails() {
        let found = Scene("", 90 * MIB, None).find(rule, |program| {
            program.scratch(40 * MIB, "whole");
            let blocks = [4, 30, 2, 4].map(|mib| program.alloc(mib * MIB, "part"));
            let [first, second, third, fourth] = blocks;
            program.hold(first);
            program.free(second);
            program.hold(third);
            program.free(fourth);
            hold(program, 1, 60 * MIB);
        });
        assert_eq!(
            lines(found),
            [
                "1. Active blocks of 6.0 MiB keep 34.0 MiB of free memory in 1 segment from being returned \
                 [survivors]",
                "- 2 active blocks (6.0 MiB) keep segments of 40.0 MiB reserved, 100.0 % of all reserved memory \
                 when the first request fails",
                "2 × part: 34.0 MiB",
                "> Allocate long-lived tensors before large short-lived ones, or copy them (tensor.clone()) after \
                 the large ones are freed",
                "35651584 bytes",
            ]
        );
    }

    #[test]
    fn blocks_of_the_small_pool_and_of_expandable_segments_do_not_count() {
        let expandable = Scene::with_conf("expandable_segments:True");
        assert_eq!(expandable.find(rule, |program| leave(program, 1)), None);
        let found = ROOMY.find(rule, |program| {
            for block in (0..8)
                .map(|_| program.alloc(MIB, "small"))
                .collect::<Vec<_>>()
            {
                program.free(block);
            }
            hold(program, 1, MIB / 2);
            program.scratch(10 * MIB, "large");
        });
        assert_eq!(found, None);
    }
}
