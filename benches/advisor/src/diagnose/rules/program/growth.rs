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
