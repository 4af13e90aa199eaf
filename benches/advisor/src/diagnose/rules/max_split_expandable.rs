//! `max_split_size_mb` together with expandable segments: they keep growing.
//!
//! **Criterion.** Both are set, and without the limit the program does better.
//!
//! **Why so.** Freed neighbours in an expandable segment join to ranges of any size; one that has
//! reached the limit serves no request below it, and new pages are mapped in its place (PyTorch 2.11,
//! `get_free_block`; pytorch/pytorch#123548).

use super::super::evidence::Evidence;
use super::super::relief::Relief;
use super::super::words::{size, typed};
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.settings.max_split_size()?;
    if !evidence.settings.expandable_segments() {
        return None;
    }
    let without = conf::with(evidence.subject.conf, "max_split_size_mb", None);
    let relief = Relief::of(evidence, &without)?;
    Some(Finding {
        rule: "max_split_expandable",
        headline: format!(
            "max_split_size_mb makes expandable segments grow by {}",
            size(relief.saved)
        ),
        evidence: vec![
            format!(
                "free ranges of {} and more serve no request below that",
                size(limit)
            ),
            relief.sentence,
        ],
        remedy: typed(&without),
        bytes: relief.saved,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{GIB, MIB, Scene, hold, several};
    use super::rule;

    /// Two neighbours of 15 MiB go, a fence behind them stays.
    fn fenced(program: &mut Program<'_>) {
        for _ in 0..5 {
            let pair = several(program, 2, 15 * MIB);
            hold(program, 1, 2 * MIB);
            program.free_all(pair);
        }
    }

    #[test]
    fn free_ranges_that_reached_the_limit() {
        let both = Scene(
            "max_split_size_mb:24,expandable_segments:True",
            80 * GIB,
            None,
        );
        let found = both.find(rule, fenced).unwrap();
        assert!(found.bytes > 100 * MIB, "{}", found.bytes);
        assert_eq!(
            found.remedy,
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        );
    }

    #[test]
    fn a_limit_that_nothing_reaches() {
        let both = Scene(
            "max_split_size_mb:500,expandable_segments:True",
            80 * GIB,
            None,
        );
        assert_eq!(both.find(rule, fenced), None);
    }
}
