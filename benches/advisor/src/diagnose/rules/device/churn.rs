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
use crate::diagnose::{Finding, SEE_ADVISE};

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
        rule: "churn",
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
        conf: None,
        bytes: per_step,
        stacks: evidence.call_sites(taken),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::Finding;
    use crate::diagnose::testing::{MIB, Scene, burst, lines, several};

    /// Collection begins at 100 MiB.
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
    fn collected_memory_is_needed_again() {
        let found = COLLECTED
            .find(rule, |program| train(program, |step| 20 + 2 * step))
            .unwrap();
        assert!(
            found.remedy.contains("garbage_collection_threshold"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn the_cache_serves_every_step() {
        assert_eq!(COLLECTED.find(rule, |program| train(program, |_| 30)), None);
    }

    /// Freed blocks of 20 MiB and more serve only requests of nearly their size. The device has room for one block of
    /// 90 MiB or three of 30 MiB, so that each displaces the other with four calls.
    const TIGHT: Scene<'_> = Scene("max_split_size_mb:20", 100 * MIB, None);
    const THREE: &[&[u64]] = &[&[30, 30, 30]];
    const WHOLE: &[&[u64]] = &[&[90]];
    /// Eight calls after a whole block.
    const BOTH: &[&[u64]] = &[&[30, 30, 30], &[90]];

    /// A step that requests groups of tensors, in MiB.
    fn run(program: &mut Program<'_>, step: usize, groups: &[&[u64]]) {
        program.mark(&format!("step {step}"));
        for group in groups {
            let tensors: Vec<_> = group
                .iter()
                .map(|mib| program.alloc(mib * MIB, "mm"))
                .collect();
            program.free_all(tensors);
        }
    }

    fn find(steps: &[&[&[u64]]]) -> Option<Finding> {
        TIGHT.find(rule, |program| {
            (0..)
                .zip(steps)
                .for_each(|(step, groups)| run(program, step, groups));
        })
    }

    #[test]
    fn blocks_that_displace_each_other() {
        // The last request of each step is served by the cache.
        let step: &[&[u64]] = &[&[30, 30, 30], &[90], &[80]];
        assert_eq!(
            lines(find(&[step; 5])),
            [
                "1. Each step takes memory from the device 4 times and returns memory 4 times [churn]",
                "- The 3 steps after the second take 540.0 MiB from the device, 180.0 MiB per step",
                "12 × mm: 540.0 MiB",
                "> Return less memory: raise or remove max_split_size_mb. `coalesce advise` ranks these settings \
                 among others",
                "188743680 bytes",
            ]
        );
    }

    #[test]
    fn four_calls_per_step() {
        assert!(find(&[THREE, WHOLE, THREE, WHOLE, THREE]).is_some());
        let one_less: &[&[u64]] = &[&[30, 30]];
        assert_eq!(find(&[THREE, WHOLE, THREE, WHOLE, one_less]), None);
    }

    #[test]
    fn the_last_request_of_a_step_takes_memory() {
        let found = TIGHT.find(rule, |program| {
            let mut before = Vec::new();
            for step in 0..5 {
                program.mark(&format!("step {step}"));
                program.free_all(before.drain(..));
                before = match step % 2 {
                    0 => several(program, 3, 30 * MIB),
                    _ => several(program, 1, 90 * MIB),
                };
            }
            before.into_iter().for_each(|last| program.hold(last));
        });
        assert!(found.is_some());
    }

    #[test]
    fn more_than_half_of_the_steps() {
        // A whole block is served by the cache.
        let two_of_four = [BOTH, BOTH, BOTH, WHOLE, BOTH, WHOLE];
        assert_eq!(find(&two_of_four), None);
        let three_of_five = [BOTH, BOTH, BOTH, WHOLE, BOTH, WHOLE, BOTH];
        assert!(find(&three_of_five).is_some());
        let often: &[&[u64]] = &[&[30, 30, 30], &[90], &[30, 30, 30], &[90]];
        let one_of_each: &[&[u64]] = &[&[30]];
        assert!(find(&[BOTH, BOTH, often, WHOLE, often, WHOLE, one_of_each]).is_some());
    }

    #[test]
    fn steps_that_only_take_memory_do_not_count() {
        let last: &[&[u64]] = &[&[30, 30, 30], &[90], &[30, 30, 30], &[90], &[30]];
        assert_eq!(find(&[BOTH, BOTH, BOTH, last, &[&[30, 30]], THREE]), None);
    }

    /// Other rules report these.
    #[test]
    fn an_emptied_cache_and_retries_are_left_to_other_rules() {
        let find = |emptied: &[usize], fifth: &[&[u64]]| {
            TIGHT.find(rule, |program| {
                for (step, groups) in [THREE, WHOLE, THREE, WHOLE, fifth, WHOLE]
                    .iter()
                    .enumerate()
                {
                    run(program, step, groups);
                    if emptied.contains(&step) {
                        program.empty_cache();
                    }
                }
            })
        };
        assert!(find(&[], THREE).is_some());
        assert!(find(&[0], THREE).is_some(), "not in a warm step");
        assert_eq!(find(&[0, 3], THREE), None);
        // A block that is not oversize is returned only when everything is.
        let retried: &[&[u64]] = &[&[15], &[95], &[30, 30, 30]];
        assert_eq!(find(&[], retried), None);
    }

    #[test]
    fn collected_memory_is_told_in_full() {
        let found = COLLECTED.find(rule, |program| train(program, |step| 20 + 2 * step));
        assert_eq!(
            lines(found),
            [
                "1. Each step takes memory from the device 4 times and returns memory 4 times [churn]",
                "- The 8 steps after the second take 992.0 MiB from the device, 124.0 MiB per step",
                "32 × several: 992.0 MiB",
                "> Raise garbage_collection_threshold, now 0.25: the memory it collects is needed again",
                "130023424 bytes",
            ]
        );
    }
}
