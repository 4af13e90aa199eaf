//! The program empties the cache in every step.
//!
//! **Criterion.** More than half of the warm steps call `torch.cuda.empty_cache()`, and on average each of
//! them takes at least [`TAKEN_PERCENT`] % of the peak of reserved memory from the device.
//!
//! **Reason.** The returned memory is taken again at once, with driver calls that synchronise.

use std::ops::Range;

use coalesce_bench::text::{amount, count};

use crate::diagnose::{Evidence, Finding};

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
        rule: "emptied",
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
        conf: None,
        bytes: per_step,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY, burst, hold, lines};

    fn train(program: &mut Program<'_>, empty: impl Fn(u64) -> bool) {
        for step in 0..6 {
            program.mark(&format!("step {step}"));
            burst(program, 4, 30 * MIB);
            if empty(step) {
                program.empty_cache();
            }
        }
    }

    #[test]
    fn in_every_step() {
        let found = ROOMY.find(rule, |program| train(program, |_| true));
        assert_eq!(found.unwrap().bytes, 4 * 30 * MIB);
    }

    #[test]
    fn once_after_the_first_step() {
        let found = ROOMY.find(rule, |program| train(program, |step| step == 0));
        assert_eq!(found, None);
    }

    #[test]
    fn in_more_than_half_of_the_warm_steps() {
        let find = |steps: u64, empty: &'static [u64]| {
            ROOMY.find(rule, move |program| {
                for step in 0..steps {
                    program.mark(&format!("step {step}"));
                    burst(program, 2, 30 * MIB);
                    if empty.contains(&step) {
                        program.scratch(70 * MIB, "mm");
                        program.empty_cache();
                    }
                }
            })
        };
        assert_eq!(find(6, &[0, 1, 3, 5]), None, "two of four");
        assert_eq!(
            lines(find(7, &[2, 3, 5])),
            [
                "1. Every step empties the cache and takes 90.0 MiB from the device again [emptied]",
                "- 3 of 5 steps call torch.cuda.empty_cache(); they take 270.0 MiB from the device",
                "> Remove torch.cuda.empty_cache() from the loop: PyTorch reuses cached memory anyway",
                "94371840 bytes",
            ]
        );
    }

    /// Each step takes 10 MiB again.
    #[test]
    fn five_percent_of_the_peak() {
        let find = |held: u64| {
            ROOMY.find(rule, move |program| {
                hold(program, 1, held * MIB);
                train_with(program, 10 * MIB);
            })
        };
        assert_eq!(find(190).unwrap().bytes, 10 * MIB);
        assert_eq!(find(192), None);
    }

    fn train_with(program: &mut Program<'_>, bytes: u64) {
        for step in 0..5 {
            program.mark(&format!("step {step}"));
            program.scratch(bytes, "mm");
            program.empty_cache();
        }
    }
}
