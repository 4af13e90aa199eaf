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
//! gradients that stay in the buckets of `DistributedDataParallel` (`gradient_as_bucket_view`), where this is intended:
//! buckets of half the dropped tensors' bytes refute the finding.

use std::collections::BTreeMap;

use coalesce_bench::text::{amount, count};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;
use crate::diagnose::log::Allocation;

/// Two backward passes after the first.
const FEWEST_UPDATES: usize = 3;
/// Every parameter has a gradient. The half of the lasting tensors may contain optimizer state instead.
const MATCHED_PERCENT: u64 = 45;
/// A few tensors of any size may be live at an optimizer step, such as the batch and the outputs.
const OUTPUTS: usize = 4;
/// Some tensors of a parameter's size are live at an optimizer step for other reasons.
const RENEWED_PERCENT: u64 = 25;

/// The function in which `fully_shard` requests the shards of the parameters, each of which replaces a parameter of the same
/// size: two tensors without a gradient.
const SHARDS: &str = "_init_sharded_param";

/// Whether `DistributedDataParallel` requests its buckets in a function: in its constructor, again in the first call, or in
/// its reducer.
fn requests_buckets(function: &str) -> bool {
    ["_ddp_init_helper", "_pre_forward"].contains(&function) || function.contains("c10d::Reducer")
}

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
    let lasting = before.filter(|(_, a)| a.is_live_after(last));
    let lasting: Vec<(usize, &Allocation)> = lasting
        .filter(|&(index, _)| !evidence.is_requested_by(index, |name| name == SHARDS))
        .collect();
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
    let buckets = evidence.born_in(0..last).filter(|&(index, a)| {
        a.is_live_after(last) && evidence.is_requested_by(index, requests_buckets)
    });
    let buckets: u64 = buckets.map(|(_, a)| a.bytes).sum();
    let flat = updates
        .windows(2)
        .map(|pair| renewed_of_any_size(evidence, pair[0], pair[1]))
        .max()
        .unwrap_or(0);
    if !evidence.is_significant(kept.bytes)
        || kept.bytes < half / 100 * MATCHED_PERCENT
        || flat * 2 >= kept.bytes
        || buckets * 2 >= kept.bytes
        || renewed.tensors * 100 > kept.tensors * RENEWED_PERCENT
    {
        return None;
    }
    Some(Finding {
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
        bytes: kept.bytes,
        stacks: evidence.call_sites(later_half(&lasting, &lasting_sizes)),
        ..Finding::default()
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
