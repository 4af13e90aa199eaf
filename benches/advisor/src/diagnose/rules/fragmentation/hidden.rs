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

use crate::diagnose::{Evidence, Finding};

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
        rule: "hidden",
        headline: format!(
            "{} is free in partly used pages, and no statistic shows it",
            amount(stuck)
        ),
        evidence: vec![
            format!(
                "At the peak, {} is reserved, {} is active, and {} more could be returned",
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
        conf: None,
        bytes: stuck,
        stacks: Vec::new(),
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

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, Scene, hold, several};

    const EXPANDABLE: Scene<'_> = Scene::with_conf("expandable_segments:True");

    /// Keeps the first `kept` of every four blocks, forty in ten pages, and then requests a large one.
    fn leave(program: &mut Program<'_>, kept: usize) {
        for (index, block) in several(program, 40, 5 * MIB).into_iter().enumerate() {
            if index % 4 < kept {
                program.hold(block);
            } else {
                program.free(block);
            }
        }
        hold(program, 1, 100 * MIB);
    }

    #[test]
    fn pages_with_one_active_block() {
        let found = EXPANDABLE.find(rule, |program| leave(program, 1)).unwrap();
        // The large block takes the free part of the last page, and leaves as much of its own last page.
        assert_eq!(found.bytes, 10 * 15 * MIB);
        assert!(
            found.evidence[1].contains("at most 0 bytes"),
            "{}",
            found.evidence[1]
        );
    }

    #[test]
    fn pages_that_are_entirely_free_or_full() {
        assert_eq!(EXPANDABLE.find(rule, |program| leave(program, 0)), None);
        assert_eq!(EXPANDABLE.find(rule, |program| leave(program, 4)), None);
    }
}
