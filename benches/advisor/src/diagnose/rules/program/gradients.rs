//! Gradients are never freed and stay allocated through every forward pass.
//!
//! **Criterion.** At least [`FEWEST_UPDATES`] optimizer steps are known. The tensors allocated before the
//! first and live at the last are *lasting*; a parameter and its gradient are two of the same size.
//! *Dropped* tensors are allocated between two optimizer steps and freed before the second, and match half
//! of the lasting tensors one to one; between any two optimizer steps they are significant. *Renewed*
//! tensors are allocated between two optimizer steps, live at the second but not for good, and of the size
//! of a lasting tensor; they never number more than [`RENEWED_PERCENT`] % of the dropped tensors. Tensors of
//! other sizes that are renewed, without the [`OUTPUTS`] largest, have less than half of their bytes:
//! gradients may be parts of larger tensors, as under `fully_shard`. The dropped tensors have at least
//! [`MATCHED_PERCENT`] % of the bytes of that half.
//!
//! **Reason.** The backward pass computes each gradient in a tensor of its parameter's size. If gradients
//! were cleared (`set_to_none=True`, the default), that tensor becomes the gradient and is live at the
//! optimizer step. Otherwise it is added to the old gradient and dropped. Other copies of the parameters,
//! such as an averaged model, occur together with renewed gradients.
//!
//! Gradients that are zeroed in place look the same and take as much memory; the remedy covers both. So do
//! gradients that stay in the buckets of `DistributedDataParallel`, where this is intended.

use std::collections::BTreeMap;

use coalesce_bench::text::{amount, count};

use crate::diagnose::log::Allocation;
use crate::diagnose::{Evidence, Finding};

/// Two backward passes after the first.
const FEWEST_UPDATES: usize = 3;
/// Every parameter has a gradient. The half of the lasting tensors may contain optimizer state instead.
const MATCHED_PERCENT: u64 = 45;
/// A few tensors of any size may be live at an optimizer step, such as the batch and the outputs.
const OUTPUTS: usize = 4;
/// Some tensors of a parameter's size are live at an optimizer step for other reasons.
const RENEWED_PERCENT: u64 = 25;

/// The number of tensors of each size in bytes.
type SizeCounts = BTreeMap<u64, u64>;

/// A number of tensors and their bytes.
#[derive(Clone, Copy, Default)]
struct TensorSum {
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
    let halves: SizeCounts = lasting_sizes
        .iter()
        .map(|(&bytes, &n)| (bytes, n / 2))
        .collect();
    let between = updates.iter().zip(updates.iter().skip(1));
    let between = between.map(|(&start, &end)| {
        let born = evidence.log.born_in(&(start..end)).iter();
        // The first optimizer step allocates optimizer state, which is not a gradient.
        let is_state = |a: &Allocation| end < last && a.is_live_after(last);
        let born = born.filter(|a| !is_state(a));
        let (renewed, dropped): (Vec<_>, Vec<_>) = born.partition(|a| a.is_live_after(end));
        (
            matched(&lasting_sizes, &renewed),
            matched(&halves, &dropped),
        )
    });
    let between: Vec<(TensorSum, TensorSum)> = between.collect();
    let kept = between
        .iter()
        .map(|&(_, dropped)| dropped)
        .min_by_key(|dropped| dropped.bytes)?;
    let renewed = between
        .iter()
        .map(|&(renewed, _)| renewed)
        .max_by_key(|renewed| renewed.tensors)?;
    let half: u64 = halves.iter().map(|(bytes, number)| bytes * number).sum();
    let flat = updates
        .windows(2)
        .map(|pair| renewed_of_any_size(evidence, pair[0], pair[1]))
        .max()
        .unwrap_or(0);
    if !evidence.is_significant(kept.bytes)
        || kept.bytes < half / 100 * MATCHED_PERCENT
        || flat * 2 >= kept.bytes
        || renewed.tensors * 100 > kept.tensors * RENEWED_PERCENT
    {
        return None;
    }
    Some(Finding {
        rule: "gradients",
        headline: format!(
            "Gradients are never freed: {} stays allocated through every forward pass",
            amount(kept.bytes)
        ),
        evidence: vec![
            format!(
                "Between any two of {}, {} of the sizes of parameters are allocated and freed again: gradients \
                 that are added to existing ones",
                count(updates.len() as u64, "optimizer step"),
                count(kept.tensors, "tensor"),
            ),
            format!(
                "No new gradients are kept: at most {} of these sizes ({}) are live at the next optimizer step",
                count(renewed.tensors, "tensor"),
                amount(renewed.bytes),
            ),
        ],
        remedy: "Call optimizer.zero_grad(set_to_none=True) after each optimizer.step(); with \
                 set_to_none=False the gradients are correct but keep this memory allocated"
            .to_owned(),
        conf: None,
        bytes: kept.bytes,
        stacks: evidence.call_sites(later_half(&lasting, &lasting_sizes)),
    })
}

/// Bytes of the tensors that are allocated between two optimizer steps and live at the second, but not for
/// good, without the largest.
fn renewed_of_any_size(evidence: &Evidence<'_>, start: u64, end: u64) -> u64 {
    let last = evidence.updates.last().copied().unwrap_or(end);
    let born = evidence.log.born_in(&(start..end)).iter();
    let live = born.filter(|a| a.is_live_after(end) && (end == last || !a.is_live_after(last)));
    let mut sizes: Vec<u64> = live.map(|a| a.bytes).collect();
    sizes.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
    sizes.iter().skip(OUTPUTS).sum()
}

fn sizes<'a>(allocations: impl Iterator<Item = &'a Allocation>) -> SizeCounts {
    let mut sizes = SizeCounts::new();
    for a in allocations {
        *sizes.entry(a.bytes).or_default() += 1;
    }
    sizes
}

/// The tensors that can be paired one to one with tensors of these sizes.
fn matched(sizes: &SizeCounts, tensors: &[&Allocation]) -> TensorSum {
    let mut left = sizes.clone();
    let mut sum = TensorSum::default();
    for a in tensors {
        if let Some(left) = left.get_mut(&a.bytes).filter(|left| **left > 0) {
            *left -= 1;
            sum.tensors += 1;
            sum.bytes += a.bytes;
        }
    }
    sum
}

/// The later half of the tensors of each size: gradients are allocated after their parameters.
fn later_half(lasting: &[(usize, &Allocation)], sizes: &SizeCounts) -> Vec<(usize, u64)> {
    let mut seen = SizeCounts::new();
    let later = lasting.iter().filter(|(_, a)| {
        let seen = seen.entry(a.bytes).or_default();
        *seen += 1;
        *seen > sizes.get(&a.bytes).map_or(0, |n| n.div_ceil(2))
    });
    later.map(|&(index, a)| (index, a.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::Finding;
    use crate::diagnose::testing::{MIB, ROOMY, burst, hold, lines, several};

    /// Four steps with eight parameters. `clear` frees the gradients; `average` keeps an averaged model.
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

    /// The parameters follow the first mark, as in a program that marks only its optimizer steps.
    #[test]
    fn never_cleared_in_a_recording_of_the_whole_program() {
        let found = ROOMY.find(rule, |program| {
            program.mark("step 0");
            train(program, false, false);
        });
        assert_eq!(found.unwrap().bytes, 8 * 4 * MIB);
    }

    #[test]
    fn adapters_of_a_model_that_is_dequantized_in_each_step() {
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
    fn cleared_after_each_optimizer_step() {
        assert_eq!(
            ROOMY.find(rule, |program| train(program, true, false)),
            None
        );
    }

    #[test]
    fn an_averaged_model_is_not_a_gradient() {
        assert_eq!(ROOMY.find(rule, |program| train(program, true, true)), None);
    }

    /// A quarter of a MiB.
    const QUARTER: u64 = MIB / 4;

    /// What happens between two optimizer steps, besides what lasts.
    #[derive(Clone, Copy)]
    struct Between {
        updates: u64,
        /// Tensors of a parameter's size that are freed before the second.
        dropped: u64,
        /// Tensors of a parameter's size that are live at the second.
        renewed: u64,
        /// Tensors of 1 MiB that are live at the second.
        flat: u64,
        /// The only step with tensors of 1 MiB, if it is not 0, and whether they stay for good.
        flat_at: u64,
        stay: bool,
    }

    const ALL: Between = Between {
        updates: 4,
        dropped: 400,
        renewed: 0,
        flat: 0,
        flat_at: 0,
        stay: false,
    };

    /// Trains 400 parameters with gradients that stay, 100 MiB each.
    fn find(between: Between) -> Option<Finding> {
        ROOMY.find(rule, move |program| {
            let weights: Vec<_> = (0..401).map(|_| program.alloc(QUARTER, "weight")).collect();
            let gradients: Vec<_> = (0..400).map(|_| program.alloc(QUARTER, "mm")).collect();
            let mut renewed = Vec::new();
            for update in 0..between.updates {
                if update > 0 {
                    // The third step drops fewer.
                    let fewer = u64::from(update == 2);
                    (fewer..between.dropped).for_each(|_| program.scratch(QUARTER, "mm"));
                    renewed = several(program, between.renewed, QUARTER);
                    // Outputs.
                    renewed.extend(several(program, 4, 7 * MIB));
                    let is_flat = between.flat_at == 0 || between.flat_at == update;
                    let flat = several(program, if is_flat { between.flat } else { 0 }, MIB);
                    if between.stay {
                        flat.into_iter().for_each(|tensor| program.hold(tensor));
                    } else {
                        renewed.extend(flat);
                    }
                }
                program.mark("optimizer");
                program.free_all(renewed.drain(..));
                if update == 0 {
                    hold(program, 10, 20 * MIB);
                }
            }
            program.free_all(gradients);
            program.free_all(weights);
        })
    }

    #[test]
    fn never_cleared_in_full() {
        assert_eq!(
            lines(find(Between { renewed: 3, ..ALL })),
            [
                "1. Gradients are never freed: 99.8 MiB stays allocated through every forward pass [gradients]",
                "- Between any two of 4 optimizer steps, 399 tensors of the sizes of parameters are allocated and \
                 freed again: gradients that are added to existing ones",
                "- No new gradients are kept: at most 3 tensors of these sizes (768.0 KiB) are live at the next \
                 optimizer step",
                "400 × mm: 100.0 MiB",
                "> Call optimizer.zero_grad(set_to_none=True) after each optimizer.step(); with set_to_none=False \
                 the gradients are correct but keep this memory allocated",
                "104595456 bytes",
            ]
        );
        assert!(find(Between { updates: 3, ..ALL }).is_some());
        assert_eq!(find(Between { updates: 2, ..ALL }), None);
    }

    /// Of the 100 MiB of one half, 45 must be matched: 180 tensors.
    #[test]
    fn most_parameters_have_a_dropped_gradient() {
        assert!(
            find(Between {
                dropped: 181,
                ..ALL
            })
            .is_some()
        );
        assert_eq!(
            find(Between {
                dropped: 180,
                ..ALL
            }),
            None,
            "one step drops 179"
        );
    }

    #[test]
    fn a_quarter_may_be_renewed() {
        let renewed = |renewed| {
            find(Between {
                dropped: 401,
                renewed,
                ..ALL
            })
        };
        assert!(renewed(100).is_some());
        assert_eq!(renewed(101), None);
    }

    /// Gradients may be parts of larger tensors. The four largest are outputs.
    #[test]
    fn renewed_tensors_of_other_sizes() {
        let find = |flat, flat_at, stay| {
            find(Between {
                dropped: 401,
                flat,
                flat_at,
                stay,
                ..ALL
            })
        };
        assert!(find(49, 0, false).is_some());
        assert_eq!(find(50, 0, false), None);
        assert_eq!(find(50, 2, false), None);
        // Tensors that stay for good are no gradients, unless it is unknown whether they stay.
        assert!(find(50, 2, true).is_some());
        assert_eq!(find(50, 3, true), None);
    }

    #[test]
    fn tensors_that_stay_for_good_are_no_gradients() {
        let found = ROOMY.find(rule, |program| {
            hold(program, 8, 4 * MIB);
            for update in 0..4 {
                (0..4).for_each(|_| program.scratch(4 * MIB, "mm"));
                if update == 1 {
                    hold(program, 54, 5 * MIB);
                }
                program.mark("optimizer");
            }
        });
        assert_eq!(found.unwrap().bytes, 16 * MIB);
    }
}
