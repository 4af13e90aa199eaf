//! The program empties the cache in every step.
//!
//! **Criterion.** More than half of the warm steps call `torch.cuda.empty_cache()`, and on average each of
//! them takes at least [`TAKEN_PERCENT`] % of the peak of reserved memory from the device.
//!
//! **Reason.** The returned memory is taken again at once, with driver calls that synchronise.

use std::ops::Range;

use coalesce_bench::text::{amount, count};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;

/// Calls that return little cost little.
const TAKEN_PERCENT: u64 = 5;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let warm = evidence.steps.as_ref()?.warm();
    let emptying: Vec<&Range<u64>> = warm
        .iter()
        .filter(|step| log.emptied.iter().any(|event| step.contains(event)))
        .collect();
    let taken_in = |step: &&Range<u64>| log.born_in(step).iter().map(|a| a.taken).sum::<u64>();
    let taken: u64 = emptying.iter().map(taken_in).sum();
    let per_step = taken.checked_div(emptying.len() as u64)?;
    let peak = evidence.measures.peak_reserved_bytes;
    if emptying.len() * 2 <= warm.len() || per_step < peak / 100 * TAKEN_PERCENT {
        return None;
    }
    Some(Finding {
        headline: format!(
            "Every step empties the cache and takes {} from the device again",
            amount(per_step)
        ),
        evidence: vec![format!(
            "{} of {} call torch.cuda.empty_cache(); they take {} from the device",
            emptying.len(),
            count(warm.len() as u64, "step"),
            amount(taken),
        )],
        remedy:
            "Remove torch.cuda.empty_cache() from the loop: PyTorch reuses cached memory anyway"
                .to_owned(),
        bytes: per_step,
        ..Finding::default()
    })
}
