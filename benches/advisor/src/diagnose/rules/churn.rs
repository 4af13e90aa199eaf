//! Memory that goes back to the device and is taken again, step after step.
//!
//! **Criterion.** In more than half of the warm steps memory is both taken from the device and returned
//! to it, and on average [`CALLS`] times a step; the program did not empty the cache in them, and no
//! request was retried: those have rules of their own.
//!
//! **Why so.** `cudaMalloc` and `cudaFree` wait for the device and cost about a millisecond; a program in
//! its stride should need neither.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, size};

/// A call or two a step nobody notices.
const CALLS: u64 = 4;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let warm = evidence.steps.as_ref()?.warm();
    let warm_events = warm.first()?.start..warm.last()?.end;
    let born = log.born_in(&warm_events);
    let is_other =
        born.iter().any(|a| a.retried) || log.emptied.iter().any(|e| warm_events.contains(e));
    if is_other {
        return None;
    }
    let calls = |events: &std::ops::Range<u64>| {
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
    let steps = warm.len() as u64;
    if churning * 2 <= warm.len() || allocs + frees < CALLS * steps {
        return None;
    }
    let taking = evidence.born_in(warm_events).filter(|(_, a)| a.taken > 0);
    let (numbers, taken): (Vec<usize>, Vec<u64>) =
        taking.map(|(index, a)| (index, a.taken)).unzip();
    let taken: u64 = taken.iter().sum();
    Some(Finding {
        rule: "churn",
        headline: format!(
            "Each step takes memory from the device {} and returns it {}",
            count(allocs.div_ceil(steps), "time"),
            count(frees.div_ceil(steps), "time"),
        ),
        evidence: vec![format!(
            "{} after the second take {} from the device, {} a step",
            count(steps, "step"),
            size(taken),
            size(taken / steps),
        )],
        remedy: match evidence.settings.garbage_collection_threshold() {
            0.0 => "raise or drop max_split_size_mb, or set expandable_segments:True".to_owned(),
            threshold => format!(
                "raise garbage_collection_threshold (it is {threshold}): what it gives back is wanted again"
            ),
        },
        bytes: taken / steps,
        stacks: evidence.places(numbers, |_, a| a.taken),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, Scene, burst};
    use super::rule;

    /// The collector begins at 100 MiB.
    const COLLECTED: Scene<'_> = Scene(
        "garbage_collection_threshold:0.25,per_process_memory_fraction:0.5",
        800 * MIB,
        None,
    );

    fn train(program: &mut Program<'_>, length: impl Fn(u64) -> u64) {
        for step in 0..10 {
            program.mark(&format!("step {step}"));
            burst(program, 4, length(step) * MIB);
        }
    }

    #[test]
    fn what_is_collected_is_wanted_again() {
        let found = COLLECTED.find(rule, |program| train(program, |step| 20 + 2 * step));
        let found = found.unwrap();
        assert!(
            found.remedy.contains("garbage_collection_threshold"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn a_cache_that_serves_every_step() {
        assert_eq!(COLLECTED.find(rule, |program| train(program, |_| 30)), None);
    }
}
