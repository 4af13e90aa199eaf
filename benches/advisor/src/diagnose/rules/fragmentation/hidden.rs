//! Free memory in expandable segments that cannot be returned and that no statistic shows.
//!
//! **Criterion.** At the peak, at least [`FREE_PERCENT`] % of reserved memory is free in partly used pages of
//! expandable segments.
//!
//! **Reason.** A page is returned only when all of it is free. Pages are 20 MiB in large segments and 2 MiB
//! in small ones. `inactive_split_bytes`, which `memory_summary()` calls non-releasable memory, excludes
//! expandable segments.

use coalesce_alloc::pytorch::size::page_size;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_bench::text::{amount, percent_of};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{AT_PEAK, Finding};

/// Rounding and the last page cost up to this share anyway.
const FREE_PERCENT: u64 = 10;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let expandable = evidence
        .peak
        .segments
        .iter()
        .filter(|segment| segment.is_expandable);
    let stuck = |segment: &SegmentInfo| {
        let page = page_size(segment.kind, &evidence.settings);
        stuck_in(segment, page)
    };
    let stuck: u64 = expandable.map(stuck).sum();
    let peak = evidence.peak_level();
    if stuck < peak.reserved / 100 * FREE_PERCENT || !evidence.is_significant(stuck) {
        return None;
    }
    Some(Finding {
        headline: format!(
            "{} is free in partly used pages, and no statistic shows it",
            amount(stuck)
        ),
        evidence: vec![
            format!(
                "{AT_PEAK}, {} was reserved, {} was active, and {} more could be returned",
                amount(peak.reserved),
                amount(peak.active),
                amount((peak.reserved - peak.active).saturating_sub(stuck)),
            ),
            format!(
                "That is {} of reserved memory, but inactive_split_bytes (\"non-releasable memory\") is at \
                 most {}",
                percent_of(stuck, peak.reserved),
                amount(evidence.measures.peak_inactive_split_bytes),
            ),
        ],
        remedy: "Measure fragmentation by reserved_bytes − active_bytes instead of inactive_split_bytes; this \
                 memory serves later requests of any size, but not other processes"
            .to_owned(),
        bytes: stuck,
        ..Finding::default()
    })
}

/// Free bytes in partly used pages of a segment, which begins at a page boundary.
fn stuck_in(segment: &SegmentInfo, page: u64) -> u64 {
    let page = page.max(1);
    let start = segment.address.0;
    let mut free = 0;
    let mut returnable = 0;
    for block in segment.blocks.iter().filter(|block| !block.is_active()) {
        let (from, to) = (
            block.address.0 - start,
            block.address.0 - start + block.size,
        );
        free += block.size;
        returnable += (to / page * page).saturating_sub(from.next_multiple_of(page));
    }
    free - returnable
}
