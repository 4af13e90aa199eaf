//! The small pool reserves much more than is active in it.
//!
//! **Criterion.** At the peak, more than [`FREE_PERCENT`] % of the partly used segments of the small pool is
//! free, and that is significant. Expandable segments do not count.
//!
//! **Reason.** Blocks of at most 1 MiB are in separate segments of 2 MiB (PyTorch's `kSmallBuffer`). One
//! small live tensor keeps 2 MiB reserved, which large requests cannot use.

use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::text::{amount, count, percent_of};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;

/// Any pool has up to this share free.
const FREE_PERCENT: u64 = 50;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let is_in_use = |segment: &&SegmentInfo| {
        segment.kind == PoolKind::Small && !segment.is_expandable && segment.active_size() > 0
    };
    let small: Vec<&SegmentInfo> = evidence.peak.segments.iter().filter(is_in_use).collect();
    let reserved: u64 = small.iter().map(|segment| segment.total_size()).sum();
    let active: u64 = small.iter().map(|segment| segment.active_size()).sum();
    let free = reserved - active;
    if free <= reserved / 100 * FREE_PERCENT || !evidence.is_significant(free) {
        return None;
    }
    let blocks = small
        .iter()
        .flat_map(|segment| &segment.blocks)
        .filter(|b| b.is_active());
    let live: Vec<(usize, u64)> = blocks
        .filter_map(|block| {
            let index = *evidence.peak.live.get(&block.address)?;
            Some((index, evidence.log.allocations.get(index)?.bytes))
        })
        .collect();
    Some(Finding {
        headline: format!(
            "The small pool reserves {} for {} of active blocks",
            amount(reserved),
            amount(active)
        ),
        evidence: vec![format!(
            "{} occupy {} of 2 MiB; {} in them is free, {} of all reserved memory",
            count(live.len() as u64, "small block"),
            count(small.len() as u64, "segment"),
            amount(free),
            percent_of(free, evidence.measures.peak_reserved_bytes),
        )],
        remedy:
            "Combine small long-lived tensors into one (torch.cat, or views of a flat buffer). \
                 Expandable segments return pages of 2 MiB one by one"
                .to_owned(),
        conf: Some(evidence.expandable()),
        bytes: free,
        stacks: evidence.call_sites(live),
        ..Finding::default()
    })
}
