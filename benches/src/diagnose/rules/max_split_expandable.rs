//! `max_split_size_mb` together with expandable segments: they keep growing.
//!
//! **Criterion.** Both are set, and without the limit the program does better.
//!
//! **Why so.** Freed neighbours in an expandable segment join to ranges of any size; one that has reached the
//! limit serves no request below it, and new pages are mapped in its place (PyTorch 2.11,
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
