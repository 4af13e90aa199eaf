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

use crate::diagnose::evidence::{Evidence, Moment};
use crate::diagnose::finding::Finding;
use crate::diagnose::improvement::Improvement;

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
            None => "when it reached its peak",
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
        ..Finding::default()
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
