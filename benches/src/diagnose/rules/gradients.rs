//! Gradients that are never given back: they lie below the next forward pass.
//!
//! **Criterion.** There are at least [`FEWEST_STEPS`] steps and the program says where its updates begin. *Kept* is
//! what the first step made before its update and what is live at the update of the last, as far as it
//! matches in size, tensor for tensor, what was live before the first step: the parameters. Kept is worth a
//! word; and at the update of each later step, of what that step made itself, no more than
//! [`RENEWED_PERCENT`] % of kept is live in tensors of the same sizes.
//!
//! **Why so.** A gradient has its parameter's size and is made on the way back, before the update. Where
//! gradients are cleared (`set_to_none=True`, the default) each step makes them anew, and all of them are
//! live when its update begins. Where they stay, each step only adds to those of the first. Other copies of
//! the parameters, as of an averaged model, come along with gradients that are renewed.
//!
//! Gradients zeroed in place look the same, and take as much: the remedy is for both.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::log::Allocation;
use super::super::words::{count, size};

/// One that makes gradients, and two that could have made them again.
const FEWEST_STEPS: usize = 3;
/// Some tensors of a parameter's size are live at the update for other reasons.
const RENEWED_PERCENT: u64 = 25;

/// How many tensors there are of each size in bytes.
type Sizes = BTreeMap<u64, u64>;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let steps = evidence.steps.as_ref()?;
    let (first, later) = steps.events.split_first()?;
    if later.len() + 1 < FEWEST_STEPS {
        return None;
    }
    let update_in = |events: &Range<u64>| {
        let mut updates = evidence.updates.iter();
        updates.find(|update| events.contains(update)).copied()
    };
    let last = update_in(later.last()?)?;
    let before = evidence.born_in(0..first.start);
    let parameters = before.filter(|(_, a)| a.is_live_after(last));
    let parameters = sizes(parameters.map(|(_, a)| a));
    let update = update_in(first)?;
    let mut unmatched = parameters;
    let made = evidence.born_in(first.start..update);
    let lasting = made.filter(|(_, a)| a.is_live_after(last));
    let kept: Vec<(usize, &Allocation)> =
        lasting.filter(|(_, a)| take(&mut unmatched, a)).collect();
    let bytes: u64 = kept.iter().map(|(_, a)| a.bytes).sum();
    if !evidence.is_worth_a_word(bytes) {
        return None;
    }
    let wanted = sizes(kept.iter().map(|&(_, a)| a));
    let mut most_renewed = 0;
    for events in later {
        let update = update_in(events)?;
        let mut wanted = wanted.clone();
        let made = evidence.born_in(events.start..update);
        let live = made.filter(|(_, a)| a.is_live_after(update));
        let renewed = live.filter(|(_, a)| take(&mut wanted, a));
        most_renewed = most_renewed.max(renewed.map(|(_, a)| a.bytes).sum());
    }
    if most_renewed > bytes / 100 * RENEWED_PERCENT {
        return None;
    }
    Some(Finding {
        rule: "gradients",
        headline: format!(
            "Gradients are never given back: {} lies below every forward pass",
            size(bytes)
        ),
        evidence: vec![
            format!(
                "{} of the sizes of parameters come from the first step and are live at the update of the last",
                count(kept.len() as u64, "tensor")
            ),
            format!(
                "no later step makes them anew: at most {} of those sizes is live at an update",
                size(most_renewed)
            ),
        ],
        remedy: "optimizer.zero_grad(set_to_none=True) after each optimizer.step(); if it is there with \
                 set_to_none=False, the sums are right, and it costs this memory"
            .to_owned(),
        bytes,
        stacks: evidence.places(kept.into_iter().map(|(index, _)| index), |_, a| a.bytes),
    })
}

fn sizes<'a>(allocations: impl Iterator<Item = &'a Allocation>) -> Sizes {
    let mut sizes = Sizes::new();
    for a in allocations {
        *sizes.entry(a.bytes).or_default() += 1;
    }
    sizes
}

/// Takes one tensor of this size away, if there is one.
fn take(sizes: &mut Sizes, a: &Allocation) -> bool {
    match sizes.get_mut(&a.bytes) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use workloads::program::Program;

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
