//! Gradients that are never given back: they lie below every forward pass.
//!
//! **Criterion.** The program says where [`FEWEST_UPDATES`] or more updates begin. What was there before
//! the first and is live at the last has, for a parameter and its gradient, two tensors of a size.
//! *Dropped* is what is made between two updates and gone before the second, as far as it matches half
//! of those, tensor for tensor: the least of it between any two is worth a word. *Renewed* is what is
//! made between two updates, live at the second but not for good, and of a size of theirs: in number it
//! is never more than [`RENEWED_PERCENT`] % of the dropped.
//!
//! **Why so.** The way back makes each gradient in a tensor of its parameter's size. Where gradients
//! were cleared (`set_to_none=True`, the default) that tensor is the gradient from then on and live at
//! the update. Where they were not, it is added to the old gradient and dropped. Other copies of the
//! parameters, as of an averaged model, come along with gradients that are renewed.
//!
//! Gradients zeroed in place look the same, and take as much: the remedy is for both. So do those that
//! stay in the buckets of `DistributedDataParallel`, which is meant.

use std::collections::BTreeMap;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::log::Allocation;
use super::super::words::{count, size};

/// Two ways back after the first.
const FEWEST_UPDATES: usize = 3;
/// Some tensors of a parameter's size are live at an update for other reasons.
const RENEWED_PERCENT: u64 = 25;

/// How many tensors there are of each size in bytes.
type Sizes = BTreeMap<u64, u64>;

/// Tensors and their bytes.
#[derive(Clone, Copy, Default)]
struct Amount {
    tensors: u64,
    bytes: u64,
}

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let updates = &evidence.updates;
    let (&first, &last) = (updates.first()?, updates.last()?);
    if updates.len() < FEWEST_UPDATES {
        return None;
    }
    let before = evidence.born_in(0..first);
    let lasting: Vec<(usize, &Allocation)> =
        before.filter(|(_, a)| a.is_live_after(last)).collect();
    let lasting_sizes = sizes(lasting.iter().map(|&(_, a)| a));
    let halves: Sizes = lasting_sizes
        .iter()
        .map(|(&bytes, &n)| (bytes, n / 2))
        .collect();
    let between = updates.iter().zip(updates.iter().skip(1));
    let between = between.map(|(&start, &end)| {
        let born = evidence.log.born_in(&(start..end)).iter();
        // What the first update makes for good, the state of the optimizer, is no gradient.
        let is_state = |a: &Allocation| end < last && a.is_live_after(last);
        let born = born.filter(|a| !is_state(a));
        let (renewed, dropped): (Vec<_>, Vec<_>) = born.partition(|a| a.is_live_after(end));
        (
            matched(&lasting_sizes, &renewed),
            matched(&halves, &dropped),
        )
    });
    let between: Vec<(Amount, Amount)> = between.collect();
    let kept = between
        .iter()
        .map(|&(_, dropped)| dropped)
        .min_by_key(|dropped| dropped.bytes)?;
    let renewed = between
        .iter()
        .map(|&(renewed, _)| renewed)
        .max_by_key(|renewed| renewed.tensors)?;
    if !evidence.is_worth_a_word(kept.bytes)
        || renewed.tensors * 100 > kept.tensors * RENEWED_PERCENT
    {
        return None;
    }
    Some(Finding {
        rule: "gradients",
        headline: format!(
            "Gradients are never given back: {} lies below every forward pass",
            size(kept.bytes)
        ),
        evidence: vec![
            format!(
                "between any two of {}, {} of the sizes of parameters are made and dropped again: gradients that \
                 are added to those that are there",
                count(updates.len() as u64, "update"),
                count(kept.tensors, "tensor"),
            ),
            format!(
                "none are made anew: at most {} of those sizes, {}, are live at the next update",
                count(renewed.tensors, "tensor"),
                size(renewed.bytes),
            ),
        ],
        remedy: "optimizer.zero_grad(set_to_none=True) after each optimizer.step(); if it is there with \
                 set_to_none=False, the sums are right, and it costs this memory"
            .to_owned(),
        bytes: kept.bytes,
        stacks: evidence.places(later_half(&lasting, &lasting_sizes), |_, a| a.bytes),
    })
}

fn sizes<'a>(allocations: impl Iterator<Item = &'a Allocation>) -> Sizes {
    let mut sizes = Sizes::new();
    for a in allocations {
        *sizes.entry(a.bytes).or_default() += 1;
    }
    sizes
}

/// What of some tensors can be paired with tensors of these sizes, one with one.
fn matched(sizes: &Sizes, tensors: &[&Allocation]) -> Amount {
    let mut left = sizes.clone();
    let mut amount = Amount::default();
    for a in tensors {
        if let Some(left) = left.get_mut(&a.bytes).filter(|left| **left > 0) {
            *left -= 1;
            amount.tensors += 1;
            amount.bytes += a.bytes;
        }
    }
    amount
}

/// Of the tensors of each size those that were made last: gradients come after their parameters.
fn later_half(lasting: &[(usize, &Allocation)], sizes: &Sizes) -> Vec<usize> {
    let mut seen = Sizes::new();
    let later = lasting.iter().filter(|(_, a)| {
        let seen = seen.entry(a.bytes).or_default();
        *seen += 1;
        *seen > sizes.get(&a.bytes).map_or(0, |n| n.div_ceil(2))
    });
    later.map(|&(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, ROOMY, burst, hold, several};
    use super::rule;

    /// Four steps with eight parameters; gradients are made anew after `clear`.
    fn train(program: &mut Program<'_>, clear: bool, average: bool) {
        hold(program, 8, 4 * MIB);
        let mut gradients = Vec::new();
        for step in 0..4 {
            program.mark(&format!("step {step}"));
            if average && step == 0 {
                hold(program, 8, 4 * MIB);
            }
            burst(program, 4, 10 * MIB);
            program.mark("backward");
            if gradients.is_empty() {
                gradients = several(program, 8, 4 * MIB);
            } else {
                (0..8).for_each(|_| program.scratch(4 * MIB, "mm"));
            }
            program.mark("optimizer");
            if step == 0 {
                hold(program, 16, 4 * MIB);
            }
            burst(program, 8, 4 * MIB);
            if clear {
                program.free_all(gradients.drain(..));
            }
        }
        program.free_all(gradients);
    }

    #[test]
    fn never_cleared() {
        let found = ROOMY
            .find(rule, |program| train(program, false, false))
            .unwrap();
        assert_eq!(found.bytes, 8 * 4 * MIB);
    }

    /// As of a program that says only where updates are, and whose parameters come after the first mark.
    #[test]
    fn never_cleared_in_a_recording_from_its_start() {
        let found = ROOMY.find(rule, |program| {
            program.mark("step 0");
            train(program, false, false);
        });
        assert_eq!(found.unwrap().bytes, 8 * 4 * MIB);
    }

    #[test]
    fn adapters_of_a_model_that_is_copied_at_each_step() {
        let found = ROOMY.find(rule, |program| {
            hold(program, 8, 4 * MIB);
            hold(program, 8, MIB);
            for _ in 0..4 {
                (0..8).for_each(|_| program.scratch(4 * MIB, "dequantize"));
                let gradients = several(program, 8, MIB);
                program.mark("optimizer");
                program.free_all(gradients);
            }
        });
        assert_eq!(found, None);
    }

    #[test]
    fn cleared_after_each_update() {
        assert_eq!(
            ROOMY.find(rule, |program| train(program, true, false)),
            None
        );
    }

    #[test]
    fn an_averaged_model_is_no_gradient() {
        assert_eq!(ROOMY.find(rule, |program| train(program, true, true)), None);
    }
}
