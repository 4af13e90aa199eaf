//! `max_split_size_mb` that costs more than it brings.
//!
//! **Criterion.** It is set, expandable segments are off, and without it the program does better; no
//! other rule says why.
//!
//! **Why so.** A block of the limit or more is never cut and serves only requests of nearly its size
//! (PyTorch 2.11, `get_free_block`): it is kept for them, and smaller requests take new memory.

use super::super::evidence::Evidence;
use super::super::relief::Relief;
use super::super::words::{size, typed};
use super::super::{Finding, conf};
use super::{max_split_boundary, max_split_segment};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.settings.max_split_size()?;
    if evidence.settings.expandable_segments() {
        return None;
    }
    let without = conf::with(evidence.subject.conf, "max_split_size_mb", None);
    let relief = Relief::of(evidence, &without)?;
    let others = [max_split_boundary::rule, max_split_segment::rule];
    if others.iter().any(|rule| rule(evidence).is_some()) {
        return None;
    }
    let blocks = evidence
        .peak
        .segments
        .iter()
        .flat_map(|segment| &segment.blocks);
    let oversize = blocks.filter(|block| !block.is_active() && block.size >= limit);
    let oversize: u64 = oversize.map(|block| block.size).sum();
    Some(Finding {
        rule: "max_split",
        headline: format!("max_split_size_mb costs {}", size(relief.saved)),
        evidence: vec![
            format!(
                "when the most is held, {} is free in blocks of {} and more, which serve no request below that",
                size(oversize),
                size(limit)
            ),
            relief.sentence,
        ],
        remedy: format!("a higher max_split_size_mb, or none: {}", typed(&without)),
        bytes: relief.saved,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{GIB, MIB, Scene, burst, hold};
    use super::rule;

    const LIMITED: Scene<'_> = Scene("max_split_size_mb:64", 80 * GIB, None);

    #[test]
    fn a_large_block_is_kept_from_smaller_requests() {
        let found = LIMITED.find(rule, |program: &mut Program<'_>| {
            program.scratch(100 * MIB, "large");
            burst(program, 4, 25 * MIB);
        });
        let found = found.unwrap();
        assert!(found.bytes >= 100 * MIB, "{}", found.bytes);
        assert!(found.remedy.contains("unset"), "{}", found.remedy);
    }

    #[test]
    fn all_is_in_use() {
        let found = LIMITED.find(rule, |program| {
            hold(program, 1, 100 * MIB);
            hold(program, 4, 25 * MIB);
        });
        assert_eq!(found, None);
    }
}
