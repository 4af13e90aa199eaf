//! Memory in expandable segments that cannot be returned, and that no statistic shows.
//!
//! **Criterion.** When the most was held, [`FREE_PERCENT`] % or more of it was free in pages of
//! expandable segments that are partly in use.
//!
//! **Why so.** Pages go back one by one, when all of a page is free; a page is 20 MiB in large segments,
//! 2 MiB in small ones. `inactive_split_bytes`, which `memory_summary()` calls non-releasable memory,
//! counts nothing of expandable segments (PyTorch 2.11).

use coalesce_alloc::pytorch::size::page_size;
use coalesce_alloc::snapshot::SegmentInfo;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{percent, size};

/// Less is what rounding and the last page cost anyway.
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
    let level = evidence.log.level(evidence.peak.event);
    if stuck < level.reserved / 100 * FREE_PERCENT || !evidence.is_worth_a_word(stuck) {
        return None;
    }
    Some(Finding {
        rule: "hidden",
        headline: format!("{} is free in pages that are partly in use, and no statistic says so", size(stuck)),
        evidence: vec![
            format!(
                "when the most is held, {} of it, {} is in use and {} more could be returned",
                size(level.reserved),
                size(level.active),
                size((level.reserved - level.active).saturating_sub(stuck)),
            ),
            format!(
                "that is {} of it, while inactive_split_bytes (\"non-releasable memory\") is at most {}",
                percent(stuck, level.reserved),
                size(evidence.measures.peak_inactive_split_bytes),
            ),
        ],
        remedy: "judge by reserved_bytes − active_bytes in place of inactive_split_bytes; later requests of any size \
                 are served from it, other processes are not"
            .to_owned(),
        bytes: stuck,
        stacks: Vec::new(),
    })
}

/// Bytes that are free in pages of a run that are partly in use. A run begins with a page.
fn stuck_in(run: &SegmentInfo, page: u64) -> u64 {
    let page = page.max(1);
    let start = run.address.0;
    let mut free = 0;
    let mut returnable = 0;
    for block in run.blocks.iter().filter(|block| !block.is_active()) {
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

    use super::super::super::testing::{GIB, MIB, Scene, hold, several};
    use super::rule;

    const EXPANDABLE: Scene<'_> = Scene("expandable_segments:True", 80 * GIB, None);

    /// Of forty blocks in ten pages the first `kept` of every four stay, and a large one comes.
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
    fn pages_with_one_block_in_use() {
        let found = EXPANDABLE.find(rule, |program| leave(program, 1)).unwrap();
        // The large block takes what is free in the last of them, and leaves as much of its own last.
        assert_eq!(found.bytes, 10 * 15 * MIB);
        assert!(
            found.evidence[1].contains("at most 0 bytes"),
            "{}",
            found.evidence[1]
        );
    }

    #[test]
    fn pages_that_are_free_or_full() {
        assert_eq!(EXPANDABLE.find(rule, |program| leave(program, 0)), None);
        assert_eq!(EXPANDABLE.find(rule, |program| leave(program, 4)), None);
    }
}
