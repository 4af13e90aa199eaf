//! A memory leak: memory grows with every step.
//!
//! **Criterion.** There are at least [`FEWEST_STEPS`] steps, or [`FEWEST_INFERRED`] if the steps are inferred.
//! Every step except the first and the last meets three conditions:
//! - at least [`PER_MILLE`] ‰ of the peak is allocated in it and still live when the last step ends;
//! - at least [`FREED_PERCENT`] % of the bytes it requests are freed before the next step begins;
//! - it leaves at least half as much memory as any other step.
//!
//! The first step does not count because it allocates what a program keeps: gradients and optimizer state. The
//! last does not count because its tensors are still in use. A cache that keeps only the newest tensor is not a
//! leak, nor is a tensor that replaces a smaller one.
//!
//! The rule `graph` covers inference that keeps its graphs.
//!
//! **Reason.** Losses, outputs or graphs kept in a list survive from every step alike. Tensors kept from
//! some steps only, such as the results of an evaluation, are uneven and not reported. Layers of one
//! forward pass keep tensors as well, but are not [steps](crate::diagnose::steps).

use std::ops::Range;

use coalesce_bench::text::{amount, count};

use super::graph;
use crate::diagnose::Finding;
use crate::diagnose::evidence::{Evidence, total};

/// At least two steps between the first and the last.
const FEWEST_STEPS: usize = 4;
/// Inference is recognised by the layers in each step. Fewer steps may be parts of one that continues.
const FEWEST_INFERRED: usize = 8;
/// A loop that only allocates fills a list on purpose, or loads a model.
const FREED_PERCENT: u64 = 10;
/// Less would take a thousand steps to double memory: keeping a loss of 4 bytes per step is harmless.
const PER_MILLE: u64 = 1;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let steps = evidence.steps.as_ref()?;
    let fewest = if steps.is_announced() || steps.trains() {
        FEWEST_STEPS
    } else {
        FEWEST_INFERRED
    };
    if steps.events.len() < fewest {
        return None;
    }
    let last = steps.end().checked_sub(1)?;
    let between = steps.events.get(1..steps.events.len() - 1)?;
    let kept_in = |events: Range<u64>| {
        let born = evidence.born_in(events);
        let kept = born.filter(|(_, a)| a.is_live_after(last));
        kept.map(|(index, a)| (index, a.bytes)).collect::<Vec<_>>()
    };
    let kept: Vec<u64> = between
        .iter()
        .map(|step| total(&kept_in(step.clone())))
        .collect();
    let (least, most) = (*kept.iter().min()?, *kept.iter().max()?);
    let peak = evidence.measures.peak_requested_bytes;
    if least < (peak / 1000 * PER_MILLE).max(1) || least < most / 2 {
        return None;
    }
    let frees = |step: &Range<u64>| {
        let born = evidence.log.born_in(step);
        let (freed, requested) = born.iter().fold((0, 0), |(freed, requested), a| {
            let is_freed = !a.is_live_after(step.end);
            (
                freed + if is_freed { a.bytes } else { 0 },
                requested + a.bytes,
            )
        });
        freed >= requested / 100 * FREED_PERCENT
    };
    if !between.iter().all(frees) || graph::rule(evidence).is_some() {
        return None;
    }
    let leaked = kept_in(between.first()?.start..between.last()?.end);
    let bytes = total(&leaked);
    let per_step = bytes / kept.len() as u64;
    let capacity = evidence.available();
    Some(Finding {
        rule: "growth",
        headline: format!(
            "Memory leak: each step leaves {} allocated that is not freed afterwards",
            amount(per_step)
        ),
        evidence: vec![
            format!(
                "Each of {} between the first and the last ({}) leaves {} to {} live at the end, {} in total",
                count(kept.len() as u64, "step"),
                steps.recognised_by(),
                amount(least),
                amount(most),
                count(leaked.len() as u64, "tensor"),
            ),
            format!(
                "The peak of requested memory is {}; at this rate a device of {} is full after {}",
                amount(peak),
                amount(capacity),
                count(capacity.saturating_sub(peak) / per_step.max(1), "more step"),
            ),
        ],
        remedy: "Keep numbers instead of tensors: append loss.item() or tensor.detach().cpu() to lists, and \
                 use torch.no_grad() for computations that are never differentiated"
            .to_owned(),
        conf: None,
        bytes,
        stacks: evidence.call_sites(leaked),
    })
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::diagnose::Finding;
    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines};

    #[test]
    fn losses_are_kept_in_a_list() {
        let found = ROOMY
            .find(rule, |program| {
                for step in 0..6 {
                    program.mark(&format!("step {step}"));
                    program.scratch(100 * MIB, "mm");
                    let loss = program.alloc(3 * MIB, "loss");
                    program.hold(loss);
                }
            })
            .unwrap();
        assert_eq!(
            found.bytes,
            4 * 3 * MIB,
            "all steps but the first and the last"
        );
        assert_eq!((found.stacks.len(), found.stacks[0].allocations), (1, 4));
        assert!(found.headline.contains("3.0 MiB"), "{}", found.headline);
    }

    #[test]
    fn only_the_newest_tensor_is_kept() {
        let found = ROOMY.find(rule, |program| {
            let mut loss = program.alloc(3 * MIB, "loss");
            for step in 0..6 {
                program.mark(&format!("step {step}"));
                loss = program.replace(loss, (4 + step) * MIB, "loss");
            }
            program.hold(loss);
        });
        assert_eq!(found, None);
    }

    #[test]
    fn only_every_other_step_keeps_much() {
        let found = ROOMY.find(rule, |program| {
            for step in 0..8 {
                program.mark(&format!("step {step}"));
                let kept = program.alloc((step % 2 * 8 + 1) * MIB, "metric");
                program.hold(kept);
            }
        });
        assert_eq!(found, None);
    }

    /// Steps that request a tensor and keep one, of these bytes. `held` bytes live throughout.
    fn find(held: u64, scratch: u64, kept: &[u64]) -> Option<Finding> {
        Scene("", 8000 * MIB, None).find(rule, |program| {
            hold(program, 1, held);
            for (step, &kept) in kept.iter().enumerate() {
                program.mark(&format!("step {step}"));
                program.scratch(scratch, "mm");
                let kept = program.alloc(kept, "loss");
                program.hold(kept);
            }
        })
    }

    #[test]
    fn a_leak_in_full() {
        let found = find(50 * MIB, 100 * MIB, &[9, 2, 4, 3, 5].map(|n| n * MIB));
        assert_eq!(
            lines(found),
            [
                "1. Memory leak: each step leaves 3.0 MiB allocated that is not freed afterwards [growth]",
                "- Each of 3 steps between the first and the last (numbered marks) leaves 2.0 MiB to 4.0 MiB live \
                 at the end, 3 tensors in total",
                "- The peak of requested memory is 168.0 MiB; at this rate a device of 7.81 GiB is full after \
                 2610 more steps",
                "3 × loss: 9.0 MiB",
                "> Keep numbers instead of tensors: append loss.item() or tensor.detach().cpu() to lists, and use \
                 torch.no_grad() for computations that are never differentiated",
                "9437184 bytes",
            ]
        );
    }

    #[test]
    fn four_steps() {
        assert!(find(MIB, MIB, &[MIB; 4]).is_some());
        assert_eq!(find(MIB, MIB, &[MIB; 3]), None);
    }

    #[test]
    fn a_thousandth_of_the_peak() {
        let held = 1000 * MIB - 4 * MIB;
        assert!(find(held, MIB, &[MIB; 4]).is_some());
        let less = MIB - 512;
        assert_eq!(find(1000 * MIB - 4 * less, MIB, &[less; 4]), None);
        assert!(
            find(1, 900, &[1; 4]).is_some(),
            "the least that a step can keep"
        );
    }

    #[test]
    fn steps_keep_half_as_much_as_others() {
        assert!(find(MIB, 90 * MIB, &[4, 2, 4, 2, 4, 4].map(|n| n * MIB)).is_some());
        let less = [4 * MIB, 2 * MIB - 512, 4 * MIB, 2 * MIB, 4 * MIB];
        assert_eq!(find(MIB, 90 * MIB, &less), None);
    }

    #[test]
    fn a_tenth_is_freed() {
        assert!(find(MIB, 10 * MIB, &[90 * MIB; 5]).is_some());
        assert_eq!(find(MIB, 10 * MIB - 51_200, &[90 * MIB; 5]), None);
    }

    #[test]
    fn the_rule_for_graphs_reports_it() {
        let found = ROOMY.find(rule, |program| {
            for step in 0..12 {
                program.mark(&format!("step {step}"));
                hold(program, 2, 10 * MIB);
                program.mark("decode");
                (0..12).for_each(|_| {
                    program.mark("decode");
                    hold(program, 2, 10 * MIB);
                });
                program.scratch(30 * MIB, "mm");
            }
        });
        assert_eq!(found, None);
    }
}
