//! Memory is returned to the device and taken again in every step.
//!
//! **Criterion.** In more than half of the warm steps memory is both taken from the device and returned to
//! it, on average [`CALLS`] times or more per step. The program did not empty the cache in these steps, and
//! no request was retried: other rules cover that.
//!
//! **Reason.** `cudaMalloc` and `cudaFree` synchronise with the device and cost about a millisecond. After
//! the first steps a program should need neither.

use std::ops::Range;

use coalesce_bench::text::{amount, count};

use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::finding::{Finding, SEE_ADVISE};

/// Fewer calls per step do not matter.
const CALLS: u64 = 4;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let steps = evidence.steps.as_ref()?;
    let (warm, warm_events) = (steps.warm(), steps.warm_events()?);
    let is_retried = log.born_in(&warm_events).iter().any(|a| a.retried);
    if is_retried || log.emptied.iter().any(|e| warm_events.contains(e)) {
        return None;
    }
    let calls = |events: &Range<u64>| {
        let (start, end) = (log.level(events.start), log.level(events.end - 1));
        let allocs = end.device_allocs - start.device_allocs;
        (allocs, end.device_frees - start.device_frees)
    };
    let churning = warm
        .iter()
        .map(calls)
        .filter(|&(allocs, frees)| allocs > 0 && frees > 0)
        .count();
    let (allocs, frees) = calls(&warm_events);
    let number = warm.len() as u64;
    if churning * 2 <= warm.len() || allocs + frees < CALLS * number {
        return None;
    }
    let taking = evidence.born_in(warm_events).filter(|(_, a)| a.taken > 0);
    let taken: Vec<(usize, u64)> = taking.map(|(index, a)| (index, a.taken)).collect();
    let per_step = total(&taken) / number;
    Some(Finding {
        headline: format!(
            "Each step takes memory from the device {} and returns memory {}",
            count(allocs.div_ceil(number), "time"),
            count(frees.div_ceil(number), "time"),
        ),
        evidence: vec![format!(
            "The {} after the second take {} from the device, {} per step",
            count(number, "step"),
            amount(total(&taken)),
            amount(per_step),
        )],
        remedy: match evidence.settings.garbage_collection_threshold() {
            0.0 => format!("Return less memory: raise or remove max_split_size_mb. {SEE_ADVISE}"),
            threshold => format!(
                "Raise garbage_collection_threshold, now {threshold}: the memory it collects is needed again"
            ),
        },
        bytes: per_step,
        stacks: evidence.call_sites(taken),
        ..Finding::default()
    })
}
