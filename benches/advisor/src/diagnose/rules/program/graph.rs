//! Inference with gradients enabled keeps activations for a backward pass that never runs.
//!
//! **Criterion.** At least [`FEWEST_PHASES`] phases of the same name follow each other, or the program
//! repeats as many requests: tokens, or layers. At least [`KEPT_PERCENT`] % of the bytes they request are
//! still live when the second next phase begins, and that is significant. At least [`DROPPED_PERCENT`] % of
//! these bytes are later freed in groups of [`DROPPED_TOGETHER`] tensors or more with no request between.
//! No request has failed before. Tensors of the size of a parameter, or half of it, do not count.
//!
//! **Reason.** Under `torch.no_grad()`, the output of an operator is freed once the next operator has used
//! it, and only a token's entry in a cache is kept. With gradients enabled, autograd keeps what each
//! operator would need in the backward pass. A cache that is copied for each token keeps only the newest
//! copy. A backward pass frees the activations of an operator, requests a gradient, frees those of the
//! operator before: only a graph that is dropped is freed in one go. A recording that ends earlier does
//! not show whether a backward pass follows. Other tensors are freed in one go as well: gradients that are
//! set to none and the parameters that autocast caches in half precision have the sizes of parameters; a
//! function that fails drops all its tensors.

use std::collections::BTreeMap;
use std::ops::Range;

use coalesce_alloc::printable::printable;
use coalesce_bench::text::{amount, percent_of};
use coalesce_workloads::formats::snapshot::workload::FAILED;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;
use crate::diagnose::log::{Allocation, Mark};

/// Fewer may be the parts of a model.
const FEWEST_PHASES: usize = 8;
/// Without gradients almost nothing is kept.
const KEPT_PERCENT: u64 = 50;
/// The share that must be dropped without a backward pass.
const DROPPED_PERCENT: u64 = 80;
/// One operator saves fewer tensors for its backward pass.
const DROPPED_TOGETHER: usize = 8;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let runs = runs(evidence);
    let worst = runs.iter().filter_map(|run| kept_in(evidence, run));
    let (kept, requested, run) = worst.max_by_key(|&(kept, _, _)| kept)?;
    if !evidence.is_significant(kept) {
        return None;
    }
    let (first, last) = (run.phases.first()?, run.phases.last()?);
    let all = evidence.born_in(first.start..last.start);
    let live: Vec<(usize, &Allocation)> =
        all.filter(|(_, a)| a.is_live_after(last.start)).collect();
    let dropped = dropped_together(evidence, run)?;
    Some(Finding {
        headline: format!(
            "{} is kept for a backward pass that never runs: inference with gradients enabled",
            amount(kept)
        ),
        evidence: vec![
            format!(
                "{} runs {} times in a row; {} of the {} that it requests is still live two runs later",
                run.name,
                run.phases.len(),
                percent_of(kept, requested),
                amount(requested),
            ),
            format!(
                "{} of that, without copies of parameters, is freed in one go: a backward pass makes requests \
                 between frees",
                amount(dropped)
            ),
        ],
        remedy: "Wrap the loop in `with torch.inference_mode():` or `with torch.no_grad():`"
            .to_owned(),
        bytes: kept,
        stacks: evidence.call_sites(live.iter().map(|&(index, a)| (index, a.bytes))),
        ..Finding::default()
    })
}

/// Bytes that the phases of a run keep and that are later freed without a backward pass, if most of them
/// are. Copies of parameters do not count.
fn dropped_together(evidence: &Evidence<'_>, run: &PhaseRun) -> Option<u64> {
    let log = &evidence.log;
    let (start, last) = (run.phases.first()?.start, run.phases.last()?.start);
    // The numbers of copies by size, in their own and in half precision.
    let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
    for a in log.born_in(&(0..start)) {
        if a.is_live_after(last) {
            *copies.entry(a.bytes).or_default() += 1;
            *copies.entry(a.bytes / 2).or_default() += 1;
        }
    }
    let mut requested = 0_u64;
    let mut kept: Vec<&Allocation> = Vec::new();
    for (phase, second_next) in run.phases.iter().zip(run.phases.iter().skip(2)) {
        for a in log.born_in(phase) {
            let is_kept = a.is_live_after(second_next.start);
            if is_kept
                && let Some(copies) = copies.get_mut(&a.bytes)
                && *copies > 0
            {
                *copies -= 1;
                continue;
            }
            requested += a.bytes;
            kept.extend(is_kept.then_some(a));
        }
    }
    let total: u64 = kept.iter().map(|a| a.bytes).sum();
    let failed = |a: &Allocation| {
        let tag = log.tags.get(a.tag as usize);
        a.failed || tag.is_some_and(|tag| tag.starts_with(FAILED))
    };
    let failure = log
        .allocations
        .iter()
        .find(|a| failed(a))
        .map_or(u64::MAX, |a| a.born);
    kept.retain(|a| a.freed < failure);
    kept.sort_unstable_by_key(|a| a.freed);
    let no_request_between =
        |a: &&Allocation, b: &&Allocation| log.born_in(&(a.freed..b.freed)).is_empty();
    let groups = kept.chunk_by(no_request_between);
    let dropped: u64 = groups
        .filter(|group| group.len() >= DROPPED_TOGETHER)
        .flatten()
        .map(|a| a.bytes)
        .sum();
    let is_graph = evidence.is_significant(dropped)
        && total >= requested / 100 * KEPT_PERCENT
        && dropped >= total / 100 * DROPPED_PERCENT;
    is_graph.then_some(dropped)
}

/// Phases that follow each other.
struct PhaseRun {
    name: String,
    /// The events of each.
    phases: Vec<Range<u64>>,
}

/// All runs of equal phases, and what the program repeats if no phases are known.
fn runs(evidence: &Evidence<'_>) -> Vec<PhaseRun> {
    let log = &evidence.log;
    let mut runs = Vec::new();
    let mut after = 0;
    for run in log.marks.chunk_by(|a, b| a.tag == b.tag) {
        after += run.len();
        let next = log.marks.get(after);
        if run.len() >= FEWEST_PHASES && !next.is_some_and(is_backward) {
            let end = next.map_or(log.end(), |mark| mark.event);
            let starts = run.iter().map(|mark| mark.event);
            let ends = starts.clone().skip(1).chain([end]);
            runs.extend(run.first().map(|mark| PhaseRun {
                name: format!("The phase '{}'", printable(&mark.tag)),
                phases: starts.zip(ends).map(|(start, end)| start..end).collect(),
            }));
        }
    }
    let trains = !evidence.updates.is_empty() || log.marks.iter().any(is_backward);
    if !trains && evidence.repeats.len() >= FEWEST_PHASES {
        runs.push(PhaseRun {
            name: "The repeated part of the program".to_owned(),
            phases: evidence.repeats.clone(),
        });
    }
    runs
}

fn is_backward(mark: &Mark) -> bool {
    mark.tag.to_ascii_lowercase().contains("backward")
}

/// For all phases of a run but the last two: bytes still live when the second next phase begins, and bytes
/// requested. `None` if too little is kept.
fn kept_in<'r>(evidence: &Evidence<'_>, run: &'r PhaseRun) -> Option<(u64, u64, &'r PhaseRun)> {
    let (mut kept, mut requested) = (0_u64, 0_u64);
    for (phase, second_next) in run.phases.iter().zip(run.phases.iter().skip(2)) {
        for a in evidence.log.born_in(phase) {
            requested = requested.saturating_add(a.bytes);
            if a.is_live_after(second_next.start) {
                kept = kept.saturating_add(a.bytes);
            }
        }
    }
    let is_kept = requested > 0 && kept >= requested / 100 * KEPT_PERCENT;
    is_kept.then_some((kept, requested, run))
}
