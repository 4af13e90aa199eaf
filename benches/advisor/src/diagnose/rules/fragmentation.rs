//! Memory that is held and free, and would not be held with expandable segments: fragmentation without a
//! cause that another rule names.
//!
//! **Criterion.** When the most was held, [`FREE_PERCENT`] % of it was free; expandable segments are
//! off, and with them the program holds [`SAVED_PERCENT`] % less at its peak. Sizes that change from
//! step to step, survivors and settings that keep free blocks from being used have rules of their own.
//!
//! **Why so.** At that moment no free block was large enough for the request, whatever they had in all.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::relief::Relief;
use super::super::words::{count, percent, size};
use super::{lengths, survivors};

/// PyTorch loses so much to rounding and to temporary tensors anyway.
const FREE_PERCENT: u64 = 10;
/// It would take many a page to make up for less.
const SAVED_PERCENT: u64 = 5;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.settings.expandable_segments() || evidence.settings.max_split_size().is_some() {
        return None;
    }
    let level = evidence.log.level(evidence.peak.event);
    let lost = level.reserved - level.active;
    if lost < level.reserved / 100 * FREE_PERCENT || !evidence.is_worth_a_word(lost) {
        return None;
    }
    let expandable = evidence.expandable();
    let relief = Relief::of(evidence, &expandable)?;
    if relief.saved < level.reserved / 100 * SAVED_PERCENT {
        return None;
    }
    if lengths::rule(evidence).is_some() || survivors::rule(evidence).is_some() {
        return None;
    }
    let blocks = evidence
        .peak
        .segments
        .iter()
        .flat_map(|segment| &segment.blocks);
    let free = blocks
        .filter(|block| !block.is_active())
        .map(|block| block.size);
    let (number, largest) = (free.clone().count(), free.max().unwrap_or(0));
    let (index, request) = evidence.log.first_request_from(evidence.peak.event)?;
    Some(Finding {
        rule: "fragmentation",
        headline: format!("{} is free in pieces when the most is held", size(lost)),
        evidence: vec![
            format!(
                "{} of the {} held then is free, in {}, the largest {}; asked for is {}",
                percent(lost, level.reserved),
                size(level.reserved),
                count(number as u64, "block"),
                size(largest),
                size(request.bytes),
            ),
            relief.sentence,
        ],
        remedy: format!("PYTORCH_CUDA_ALLOC_CONF={expandable}"),
        bytes: relief.saved,
        stacks: evidence.places([index], |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, ROOMY};
    use super::rule;

    #[test]
    fn a_buffer_that_grows() {
        let found = ROOMY.find(rule, |program| {
            (0..30).for_each(|n| program.scratch((20 + 2 * n) * MIB, "cat"));
        });
        assert!(found.unwrap().bytes > 1000 * MIB);
    }

    #[test]
    fn one_that_does_not() {
        let found = ROOMY.find(rule, |program| {
            (0..30).for_each(|_| program.scratch(20 * MIB, "cat"))
        });
        assert_eq!(found, None);
    }
}
