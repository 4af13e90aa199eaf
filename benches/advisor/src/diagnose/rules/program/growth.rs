//! A memory leak: memory grows with every step.
//!
//! **Criterion.** There are at least [`FEWEST_STEPS`] steps, or [`FEWEST_INFERRED`] if the steps are inferred.
//! Every step except the first and the last meets three conditions:
//! - at least [`PER_MILLE`] ‰ of the peak is allocated in it and still live when the last step ends;
//! - at least [`FREED_PERCENT`] % of the bytes it requests are freed before the next step begins;
//! - it leaves at least half as much memory as any other step.
//!
//! The steps are judged up to the first failed request, if there are enough before it: the exception that it raises frees what
//! the program kept, before a snapshot is written.
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
use crate::diagnose::call_site::CallSite;
use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::finding::Finding;

/// At least two steps between the first and the last.
const FEWEST_STEPS: usize = 4;
/// Inference is recognised by the layers in each step. Fewer steps may be parts of one that continues.
const FEWEST_INFERRED: usize = 8;
/// A loop that only allocates fills a list on purpose, or loads a model.
const FREED_PERCENT: u64 = 10;
/// Less would take a thousand steps to double memory: keeping a loss of 4 bytes per step is harmless.
const PER_MILLE: u64 = 1;

/// What every step leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leak {
    /// Bytes that a step leaves, on average.
    pub per_step: u64,
    /// Bytes that the step leaves that leaves least, and most.
    least: u64,
    most: u64,
    /// Number of steps that are judged.
    steps: u64,
    /// Number of tensors that they leave.
    tensors: u64,
    /// Bytes that they leave together.
    pub bytes: u64,
    /// Who requested them, largest first.
    pub stacks: Vec<CallSite>,
    /// Whether a request fails after these steps.
    fails: bool,
}

/// The leak of a program, if it has one: up to the request that ends it or another failed request, or in the whole recording.
pub fn leak(evidence: &Evidence<'_>) -> Option<Leak> {
    let end = evidence.steps.as_ref()?.end();
    let failures = [evidence.log.first_failure(), evidence.log.failure()];
    let failed = failures
        .into_iter()
        .flatten()
        .map(|failed| failed.born.min(end));
    let ends = failed.map(|end| (end, true)).chain([(end, false)]);
    let mut leaks = ends.filter_map(|(end, fails)| {
        Some(Leak {
            fails,
            ..leak_until(end, evidence)?
        })
    });
    leaks.next()
}

/// The leak up to an event.
fn leak_until(end: u64, evidence: &Evidence<'_>) -> Option<Leak> {
    let steps = evidence.steps.as_ref()?;
    let fewest = if steps.is_announced() || steps.trains() {
        FEWEST_STEPS
    } else {
        FEWEST_INFERRED
    };
    let judged: Vec<&Range<u64>> = steps
        .events
        .iter()
        .filter(|step| step.start < end)
        .collect();
    if judged.len() < fewest {
        return None;
    }
    let last = end.checked_sub(1)?;
    let between = judged.get(1..judged.len() - 1)?;
    let kept_in = |events: Range<u64>| {
        let born = evidence.born_in(events);
        let kept = born.filter(|(_, a)| a.is_live_after(last));
        kept.map(|(index, a)| (index, a.bytes)).collect::<Vec<_>>()
    };
    let kept: Vec<u64> = between
        .iter()
        .map(|step| total(&kept_in(Range::clone(step))))
        .collect();
    let (least, most) = (*kept.iter().min()?, *kept.iter().max()?);
    let peak = evidence.measures.peak_requested_bytes;
    if least < (peak / 1000 * PER_MILLE).max(1) || least < most / 2 {
        return None;
    }
    let frees = |step: &&Range<u64>| {
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
    Some(Leak {
        per_step: bytes / kept.len() as u64,
        least,
        most,
        steps: kept.len() as u64,
        tensors: leaked.len() as u64,
        bytes,
        stacks: evidence.call_sites(leaked),
        fails: false,
    })
}

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let leak = leak(evidence)?;
    let steps = evidence.steps.as_ref()?;
    let peak = evidence.measures.peak_requested_bytes;
    let capacity = evidence.available();
    Some(Finding {
        headline: format!(
            "Memory leak: each step leaves {} allocated that is not freed afterwards",
            amount(leak.per_step)
        ),
        evidence: vec![
            format!(
                "Each of {} between the first and the last ({}) leaves {} to {} live at the end, {} in total",
                count(leak.steps, "step"),
                steps.recognised_by(),
                amount(leak.least),
                amount(leak.most),
                count(leak.tensors, "tensor"),
            ),
            if leak.fails {
                format!(
                    "A request fails when the steps have left {}, with {} available",
                    amount(leak.bytes),
                    amount(capacity)
                )
            } else {
                format!(
                    "The peak of requested memory is {}; at this rate a device of {} is full after {}",
                    amount(peak),
                    amount(capacity),
                    count(capacity.saturating_sub(peak) / leak.per_step.max(1), "more step"),
                )
            },
        ],
        remedy: "Keep numbers instead of tensors: append loss.item() or tensor.detach().cpu() to lists, and \
                 use torch.no_grad() for computations that are never differentiated"
            .to_owned(),
        bytes: leak.bytes,
        stacks: leak.stacks,
        ..Finding::default()
    })
}
