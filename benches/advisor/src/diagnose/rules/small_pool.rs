//! The pool of small blocks holds much more than is in use in it.
//!
//! **Criterion.** When the most was held, of the segments of small blocks that are in use more than
//! [`FREE_PERCENT`] % is free, and that is worth a word. Expandable segments do not count.
//!
//! **Why so.** Blocks of at most 1 MiB lie in segments of 2 MiB of their own (PyTorch 2.11,
//! `kSmallBuffer`). One small tensor that lives on keeps 2 MiB, and large requests cannot use them.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, percent, size};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

/// Less is what any pool has.
const FREE_PERCENT: u64 = 50;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let is_in_use = |segment: &&SegmentInfo| {
        segment.kind == PoolKind::Small && !segment.is_expandable && segment.active_size() > 0
    };
    let small: Vec<&SegmentInfo> = evidence.peak.segments.iter().filter(is_in_use).collect();
    let held: u64 = small.iter().map(|segment| segment.total_size()).sum();
    let active: u64 = small.iter().map(|segment| segment.active_size()).sum();
    let free = held - active;
    if free <= held / 100 * FREE_PERCENT || !evidence.is_worth_a_word(free) {
        return None;
    }
    let blocks = small
        .iter()
        .flat_map(|segment| &segment.blocks)
        .filter(|b| b.is_active());
    let numbers = blocks.filter_map(|block| evidence.peak.live.get(&block.address).copied());
    let numbers: Vec<usize> = numbers.collect();
    let expandable = evidence.expandable();
    Some(Finding {
        rule: "small_pool",
        headline: format!(
            "The pool of small blocks holds {} for {} in use",
            size(held),
            size(active)
        ),
        evidence: vec![format!(
            "{} lie in {} of 2 MiB; {} of them is free, {} of all that is held",
            count(numbers.len() as u64, "small block"),
            count(small.len() as u64, "segment"),
            size(free),
            percent(free, evidence.measures.peak_reserved_bytes),
        )],
        remedy: format!(
            "put many small tensors that live long into one (torch.cat, or a flat buffer with views); or \
             PYTORCH_CUDA_ALLOC_CONF={expandable}, with which pages of 2 MiB go back one by one"
        ),
        bytes: free,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, ROOMY, several};
    use super::rule;

    /// 20,000 blocks of 4 KiB, of which one in `among` lives on, and then a large one.
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
    fn one_block_in_a_hundred_keeps_all_segments() {
        let found = ROOMY.find(rule, |program| leave(program, 100)).unwrap();
        assert!(found.bytes > 70 * MIB, "{}", found.bytes);
        assert_eq!(found.stacks[0].allocations, 200);
    }

    #[test]
    fn a_pool_that_is_full() {
        assert_eq!(ROOMY.find(rule, |program| leave(program, 1)), None);
    }
}
