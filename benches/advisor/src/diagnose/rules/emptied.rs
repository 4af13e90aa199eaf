//! A program that empties the cache in every step.
//!
//! **Criterion.** `torch.cuda.empty_cache()` is called in more than half of the warm steps, and these
//! then take more from the device than [`TAKEN_PERCENT`] % of what is held at the peak, each on average.
//!
//! **Why so.** What is returned is taken again at once, each time with calls that wait for the device.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, size};

/// Calls that return next to nothing cost next to nothing.
const TAKEN_PERCENT: u64 = 5;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let warm = evidence.steps.as_ref()?.warm();
    let emptying = warm
        .iter()
        .filter(|step| log.emptied.iter().any(|event| step.contains(event)));
    let emptying: Vec<_> = emptying.collect();
    let taken_in =
        |step: &&std::ops::Range<u64>| log.born_in(step).iter().map(|a| a.taken).sum::<u64>();
    let taken: u64 = emptying.iter().map(taken_in).sum();
    let a_step = taken.checked_div(emptying.len() as u64)?;
    let peak = evidence.measures.peak_reserved_bytes;
    if emptying.len() * 2 <= warm.len() || a_step < peak / 100 * TAKEN_PERCENT {
        return None;
    }
    Some(Finding {
        rule: "emptied",
        headline: format!(
            "The cache is emptied in every step, and {} taken again",
            size(a_step)
        ),
        evidence: vec![format!(
            "{} of {} call torch.cuda.empty_cache(); they take {} from the device",
            emptying.len(),
            count(warm.len() as u64, "step"),
            size(taken),
        )],
        remedy: "no torch.cuda.empty_cache() inside the loop: cached memory is reused anyway"
            .to_owned(),
        bytes: a_step,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, ROOMY, burst};
    use super::rule;

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
        let found = ROOMY
            .find(rule, |program| train(program, |_| true))
            .unwrap();
        assert_eq!(found.bytes, 4 * 30 * MIB);
    }

    #[test]
    fn once_after_the_first() {
        assert_eq!(
            ROOMY.find(rule, |program| train(program, |step| step == 0)),
            None
        );
    }
}
