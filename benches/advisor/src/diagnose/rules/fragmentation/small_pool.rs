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

use crate::diagnose::{Evidence, Finding};

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
        rule: "small_pool",
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
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines, several};

    /// Keeps one of every `among` blocks, 20,000 of 4 KiB, and then requests a large one.
    fn leave(program: &mut Program<'_>, among: usize) {
        let blocks = several(program, 20_000, 4096);
        for (index, block) in blocks.into_iter().enumerate() {
            if index % among == 0 {
                program.hold(block);
            } else {
                program.free(block);
            }
        }
        program.scratch(200 * MIB, "large");
    }

    #[test]
    fn one_block_in_a_hundred_keeps_all_segments_reserved() {
        let found = ROOMY.find(rule, |program| leave(program, 100)).unwrap();
        assert!(found.bytes > 70 * MIB, "{}", found.bytes);
        assert_eq!(found.stacks[0].allocations, 200);
    }

    #[test]
    fn a_full_pool() {
        assert_eq!(ROOMY.find(rule, |program| leave(program, 1)), None);
    }

    /// 25 segments of 2 MiB with 12,800 blocks of 4 KiB, of which `kept` stay, nearly as many in each.
    fn keep(program: &mut Program<'_>, kept: usize, first: u64) {
        let large = program.alloc(first * MIB, "large");
        let blocks = several(program, 12_800, 4096);
        for (index, block) in blocks.into_iter().enumerate() {
            let (segment, place) = (index / 512, index % 512);
            if place < kept / 25 + usize::from(segment < kept % 25) {
                program.hold(block);
            } else {
                program.free(block);
            }
        }
        program.free(large);
        program.scratch((first + 2) * MIB, "larger");
    }

    #[test]
    fn more_than_half_is_free() {
        let find = |kept| ROOMY.find(rule, move |program| keep(program, kept, 50));
        assert_eq!(
            lines(find(6399)),
            [
                "1. The small pool reserves 50.0 MiB for 25.0 MiB of active blocks [small_pool]",
                "- 6399 small blocks occupy 25 segments of 2 MiB; 25.0 MiB in them is free, 16.4 % of all \
                 reserved memory",
                "6399 × several: 25.0 MiB",
                "> Combine small long-lived tensors into one (torch.cat, or views of a flat buffer). Expandable \
                 segments return pages of 2 MiB one by one",
                "26218496 bytes, with 'expandable_segments:True'",
            ]
        );
        assert_eq!(find(6400), None, "exactly half");
        assert_eq!(find(0), None, "segments that are not in use");
    }

    /// One block of 512 bytes in each segment keeps it, and the rest is not worth a change in a large program.
    #[test]
    fn little_is_free() {
        assert_eq!(ROOMY.find(rule, |program| keep(program, 25, 4960)), None);
    }

    #[test]
    fn pages_of_expandable_segments_do_not_count() {
        let expandable = Scene::with_conf("expandable_segments:True");
        assert_eq!(expandable.find(rule, |program| keep(program, 25, 50)), None);
    }

    #[test]
    fn large_segments_do_not_count() {
        let found = ROOMY.find(rule, |program| {
            for block in several(program, 40, 5 * MIB).into_iter().enumerate() {
                match block {
                    (index, block) if index % 4 == 0 => program.hold(block),
                    (_, block) => program.free(block),
                }
            }
            hold(program, 1, 100 * MIB);
        });
        assert_eq!(found, None);
    }
}
