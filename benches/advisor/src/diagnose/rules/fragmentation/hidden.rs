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
    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines, several};

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

    /// Frees some of 36 blocks in nine pages, and then requests a whole page.
    fn free_some(program: &mut Program<'_>, small: u64, freed: &[usize], last: u64) {
        hold(program, small, MIB);
        for (index, block) in several(program, 36, 5 * MIB).into_iter().enumerate() {
            if freed.contains(&index) {
                program.free(block);
            } else {
                program.hold(block);
            }
        }
        hold(program, 1, last * MIB);
    }

    #[test]
    fn ten_percent_are_in_partly_used_pages() {
        let find = |small, freed: &'static [usize]| {
            EXPANDABLE.find(rule, move |program| free_some(program, small, freed, 20))
        };
        assert_eq!(
            lines(find(0, &[0, 4, 8, 12])),
            [
                "1. 20.0 MiB is free in partly used pages, and no statistic shows it [hidden]",
                "- At the peak, 200.0 MiB is reserved, 180.0 MiB is active, and 0 bytes more could be returned",
                "- That is 10.0 % of reserved memory, but inactive_split_bytes (\"non-releasable memory\") is at \
                 most 0 bytes",
                "> Measure fragmentation by reserved_bytes − active_bytes instead of inactive_split_bytes; this \
                 memory serves later requests of any size, but not other processes",
                "20971520 bytes",
            ]
        );
        assert_eq!(find(0, &[0, 4, 8]), None);
        assert_eq!(find(2, &[0, 4, 8, 12]), None, "of 202 MiB");
    }

    /// Of the 40 MiB from the middle of the first page on, the second page could be returned.
    #[test]
    fn whole_pages_can_be_returned() {
        let found = EXPANDABLE.find(rule, |program| {
            free_some(program, 1, &[2, 3, 4, 5, 6, 7, 8, 9, 20], 45);
        });
        assert_eq!(
            lines(found),
            [
                "1. 41.0 MiB is free in partly used pages, and no statistic shows it [hidden]",
                "- At the peak, 242.0 MiB is reserved, 181.0 MiB is active, and 20.0 MiB more could be returned",
                "- That is 16.9 % of reserved memory, but inactive_split_bytes (\"non-releasable memory\") is at \
                 most 0 bytes",
                "> Measure fragmentation by reserved_bytes − active_bytes instead of inactive_split_bytes; this \
                 memory serves later requests of any size, but not other processes",
                "42991616 bytes",
            ]
        );
    }

    #[test]
    fn segments_without_pages() {
        assert_eq!(ROOMY.find(rule, |program| leave(program, 1)), None);
    }
}
