//! Fragmentation that expandable segments would avoid and no other rule explains.
//!
//! **Criterion.** At the peak, at least [`FREE_PERCENT`] % of reserved memory is free. Expandable segments
//! are disabled, and with them the peak of reserved memory is lower by [`SAVED_PERCENT`] %. Other rules
//! cover sizes that change from step to step, survivors, and settings that limit splitting.
//!
//! **Reason.** At the peak, no free block was large enough for the request, whatever their sum.

use coalesce_bench::text::{Unit, amount, count, percent_of};

use super::{lengths, survivors};
use crate::diagnose::improvement::Improvement;
use crate::diagnose::{Evidence, Finding, SEE_ADVISE};

/// PyTorch loses up to this share to rounding and temporary tensors anyway.
const FREE_PERCENT: u64 = 10;
/// A smaller saving does not justify the cost of mapping pages.
const SAVED_PERCENT: u64 = 5;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.settings.expandable_segments() || evidence.settings.max_split_size().is_some() {
        return None;
    }
    let peak = evidence.peak_level();
    let lost = peak.reserved - peak.active;
    if lost < peak.reserved / 100 * FREE_PERCENT || !evidence.is_significant(lost) {
        return None;
    }
    let expandable = evidence.expandable();
    let improvement = Improvement::of(evidence, &expandable)?;
    if improvement.saved < peak.reserved / 100 * SAVED_PERCENT
        || lengths::rule(evidence).is_some()
        || survivors::rule(evidence).is_some()
    {
        return None;
    }
    let free = evidence.peak.free_blocks();
    let (number, largest) = (free.clone().count(), free.max().unwrap_or(0));
    let (index, request) = evidence.log.first_request_from(evidence.peak.event)?;
    let unit = Unit::of(peak.reserved);
    Some(Finding {
        rule: "fragmentation",
        headline: format!("At the peak, {} is free but fragmented", amount(lost)),
        evidence: vec![
            format!(
                "{} of the {} reserved is free, in {}; the largest is {}, and the request is for {}",
                percent_of(lost, peak.reserved),
                unit.amount(peak.reserved),
                count(number as u64, "block"),
                unit.amount(largest),
                unit.amount(request.bytes),
            ),
            improvement.sentence,
        ],
        remedy: SEE_ADVISE.to_owned(),
        conf: Some(expandable),
        bytes: improvement.saved,
        stacks: evidence.call_sites([(index, request.bytes)]),
    })
}

#[cfg(test)]
mod tests {
    use super::rule;
    use coalesce_workloads::families::program::Program;

    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines};

    #[test]
    fn a_growing_buffer() {
        let found = ROOMY.find(rule, |program| {
            (0..30).for_each(|n| program.scratch((20 + 2 * n) * MIB, "cat"));
        });
        assert!(found.unwrap().bytes > 1000 * MIB);
    }

    #[test]
    fn a_buffer_of_constant_size() {
        let found = ROOMY.find(rule, |program| {
            (0..30).for_each(|_| program.scratch(20 * MIB, "cat"))
        });
        assert_eq!(found, None);
    }

    /// A freed block is too small for the last request. Tensors of another stream need more pages than segments.
    fn too_small(program: &mut Program<'_>, held: u64, other_stream: u64, scratch: u64, last: u64) {
        hold(program, 1, held * MIB);
        if other_stream > 0 {
            let other = program.alloc_on(1, other_stream * MIB, "other");
            program.hold(other);
        }
        program.scratch(scratch * MIB, "scratch");
        hold(program, 1, last * MIB);
    }

    #[test]
    fn ten_percent_are_free() {
        let find = |small, held, scratch| {
            ROOMY.find(rule, move |program| {
                hold(program, small, MIB);
                too_small(program, held, 0, scratch, 30);
            })
        };
        assert_eq!(
            lines(find(0, 150, 20)),
            [
                "1. At the peak, 20.0 MiB is free but fragmented [fragmentation]",
                "- 10.0 % of the 200.0 MiB reserved is free, in 1 block; the largest is 20.0 MiB, and the request \
                 is for 30.0 MiB",
                "- With 'expandable_segments:True', 180.0 MiB is reserved at the peak instead of 200.0 MiB, and \
                 memory is taken from or returned to the device 2 times instead of 3",
                "1 × several: 30.0 MiB",
                "> `coalesce advise` ranks these settings among others",
                "20971520 bytes, with 'expandable_segments:True'",
            ]
        );
        assert_eq!(find(0, 152, 18), None);
        assert_eq!(find(2, 150, 20), None, "of 202 MiB");
    }

    #[test]
    fn five_percent_are_saved() {
        let find = |held, small| {
            ROOMY.find(rule, move |program| {
                hold(program, small, MIB);
                too_small(program, held, 10, 340 - held, 50);
            })
        };
        // Of 400 MiB reserved, expandable segments save 20.
        assert_eq!(find(298, 0).unwrap().bytes, 20 * MIB);
        assert_eq!(find(298, 2), None, "of 402 MiB");
    }

    #[test]
    fn several_free_blocks() {
        let found = ROOMY.find(rule, |program| {
            too_small(program, 50, 0, 24, 30);
            program.scratch(10 * MIB, "mm");
            hold(program, 1, 26 * MIB);
        });
        assert_eq!(
            lines(found),
            [
                "1. At the peak, 24.0 MiB is free but fragmented [fragmentation]",
                "- 18.5 % of the 130.0 MiB reserved is free, in 1 block; the largest is 24.0 MiB, and the request \
                 is for 26.0 MiB",
                "- With 'expandable_segments:True', 120.0 MiB is reserved at the peak instead of 130.0 MiB, and \
                 memory is taken from or returned to the device 4 times instead of 4",
                "1 × several: 26.0 MiB",
                "> `coalesce advise` ranks these settings among others",
                "10485760 bytes, with 'expandable_segments:True'",
            ]
        );
    }

    #[test]
    fn settings_explain_it() {
        let limited = Scene::with_conf("max_split_size_mb:500");
        assert_eq!(
            limited.find(rule, |program| too_small(program, 150, 0, 20, 30)),
            None
        );
    }

    /// Other rules report these.
    #[test]
    fn changing_lengths_and_survivors_explain_it() {
        let changing = |program: &mut Program<'_>, mark: &str| {
            for step in 0..8 {
                program.mark(&format!("{mark} {step}"));
                (0..8).for_each(|_| program.scratch((20 + 6 * step) * MIB, "mm"));
            }
        };
        assert_eq!(ROOMY.find(rule, |program| changing(program, "step")), None);
        assert!(
            ROOMY
                .find(rule, |program| changing(program, "layer"))
                .is_some()
        );
        let survivors = |program: &mut Program<'_>, kept: u64| {
            let mut rest = Vec::new();
            for _ in 0..5 {
                hold(program, 1, kept * MIB);
                rest.push(program.alloc((20 - kept) * MIB, "rest"));
            }
            program.free_all(rest);
            hold(program, 1, 30 * MIB);
        };
        assert_eq!(ROOMY.find(rule, |program| survivors(program, 4)), None);
        assert!(ROOMY.find(rule, |program| survivors(program, 6)).is_some());
    }
}
