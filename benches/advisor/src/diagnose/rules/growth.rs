//! Memory that grows with every step, until there is none left: a leak.
//!
//! **Criterion.** There are at least [`FEWEST_STEPS`] steps. Of each but the first and the last
//! something is still live when the last step ends, at least [`PER_MILLE`] ‰ of the peak; and of no step
//! less than half as much as of another. The first step does not count: it makes what a program keeps
//! for good, gradients and the state of the optimizer. The last does not count: what it made is in use.
//! A cache that keeps only the newest leaves nothing of the earlier steps, and a larger tensor in place
//! of a smaller is a new one for an old one: neither is a leak.
//!
//! A program that keeps the graphs of everything has a rule of its own.
//!
//! **Why so.** Losses, outputs or graphs kept in a list live on from every step alike. What is kept of
//! some steps only, as the results of an evaluation, is not even and is left alone.

use std::ops::Range;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, size};
use super::graph;

/// Two steps between the first and the last.
const FEWEST_STEPS: usize = 4;
/// Less would take a thousand steps to double the memory: a loss of 4 bytes kept of each step is no trouble.
const PER_MILLE: u64 = 1;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let steps = evidence.steps.as_ref()?;
    if steps.events.len() < FEWEST_STEPS {
        return None;
    }
    let last = steps.end().checked_sub(1)?;
    let between = steps.events.get(1..steps.events.len() - 1)?;
    let kept_of = |events: &Range<u64>| {
        let born = evidence.born_in(events.clone());
        let kept = born.filter(|(_, a)| a.is_live_after(last));
        kept.map(|(_, a)| a.bytes).sum::<u64>()
    };
    let kept: Vec<u64> = between.iter().map(kept_of).collect();
    let (least, most) = (*kept.iter().min()?, *kept.iter().max()?);
    let peak = evidence.measures.peak_requested_bytes;
    if least < (peak / 1000 * PER_MILLE).max(1) || least < most / 2 {
        return None;
    }
    if graph::rule(evidence).is_some() {
        return None;
    }
    let total: u64 = kept.iter().sum();
    let a_step = total / kept.len() as u64;
    let all = between.first()?.start..between.last()?.end;
    let grown = evidence.born_in(all).filter(|(_, a)| a.is_live_after(last));
    let numbers: Vec<usize> = grown.map(|(index, _)| index).collect();
    let capacity = evidence.subject.capacity;
    Some(Finding {
        rule: "growth",
        headline: format!(
            "A leak: each step leaves {} behind that is never given back",
            size(a_step)
        ),
        evidence: vec![
            format!(
                "of {} between the first and the last, {} to {} are live at the end, in {}",
                count(kept.len() as u64, "step"),
                size(least),
                size(most),
                count(numbers.len() as u64, "tensor"),
            ),
            format!(
                "{} is asked for at the peak; at this pace a device of {} is full after {}",
                size(peak),
                size(capacity),
                count(capacity.saturating_sub(peak) / a_step.max(1), "more step"),
            ),
        ],
        remedy: "keep numbers instead of tensors: loss.item() or tensor.detach().cpu() for what goes into a \
                 list; torch.no_grad() around what is never differentiated"
            .to_owned(),
        bytes: total,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, ROOMY};
    use super::rule;

    #[test]
    fn losses_in_a_list() {
        let found = ROOMY.find(rule, |program| {
            for step in 0..6 {
                program.mark(&format!("step {step}"));
                program.scratch(100 * MIB, "mm");
                let loss = program.alloc(3 * MIB, "loss");
                program.hold(loss);
            }
        });
        let found = found.unwrap();
        assert_eq!(found.bytes, 4 * 3 * MIB, "all but the first and the last");
        assert_eq!((found.stacks.len(), found.stacks[0].allocations), (1, 4));
        assert!(found.headline.contains("3.0 MiB"), "{}", found.headline);
    }

    #[test]
    fn only_the_newest_is_kept() {
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
    fn what_every_other_step_keeps_is_not_even() {
        let found = ROOMY.find(rule, |program| {
            for step in 0..8 {
                program.mark(&format!("step {step}"));
                let kept = program.alloc((step % 2 * 8 + 1) * MIB, "metric");
                program.hold(kept);
            }
        });
        assert_eq!(found, None);
    }
}
