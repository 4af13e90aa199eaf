//! Inputs of different lengths: what one step gives back fits no request of the next.
//!
//! **Criterion.** In half of the warm steps at least [`NEW_PERCENT`] % of the bytes asked for in large
//! blocks are in blocks of a size that the step before did not have. Warm steps that do not empty the
//! cache took, in all, what is worth a word from the device although as much as was asked for lay free
//! in the cache. And with expandable segments, which are off, the program holds [`SAVED_PERCENT`] % less
//! at its peak: they cut anything to size.
//!
//! **Why so.** A cached block serves a smaller request and keeps the rest, or does not serve a larger
//! one. With sizes that change at every step the cache fills up with pieces that fit nothing.

use std::collections::BTreeSet;

use coalesce_alloc::pytorch::size::SMALL_LIMIT;

use super::super::evidence::Evidence;
use super::super::log::Allocation;
use super::super::relief::Relief;
use super::super::words::{count, percent, size};
use super::super::{Finding, conf};

/// Workspaces and the like change size in programs whose inputs do not.
const NEW_PERCENT: u64 = 25;
/// It would take many a page to make up for less.
const SAVED_PERCENT: u64 = 5;
/// So many kinds of steps are told by their number.
const FEW: usize = 8;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.settings.expandable_segments() || max_split_is_to_blame(evidence) {
        return None;
    }
    let steps = evidence.steps.as_ref()?;
    let (warm, log) = (steps.warm(), &evidence.log);
    let sizes_of = |events| sizes(log.born_in(events));
    let pairs = steps.events.iter().skip(1).zip(warm);
    let mut news: Vec<u64> = pairs
        .map(|(before, now)| new_percent(&sizes_of(before), log.born_in(now)))
        .collect();
    news.sort_unstable();
    let median = *news.get(news.len() / 2)?;
    if median < NEW_PERCENT {
        return None;
    }
    let warm_events = warm.first()?.start..warm.last()?.end;
    let is_emptied = |a: &Allocation| {
        let step = warm.iter().find(|step| step.contains(&a.born));
        step.is_some_and(|step| log.emptied.iter().any(|event| step.contains(event)))
    };
    let in_vain = evidence.born_in(warm_events).filter(|(_, a)| {
        let before = log.level(a.born.saturating_sub(1));
        a.taken > 0 && !a.failed && before.reserved - before.active >= a.block && !is_emptied(a)
    });
    let (numbers, taken): (Vec<usize>, Vec<u64>) =
        in_vain.map(|(index, a)| (index, a.taken)).unzip();
    let taken: u64 = taken.iter().sum();
    let peak = log.level(evidence.peak.event);
    let expandable = evidence.expandable();
    let relief = Relief::of(evidence, &expandable)?;
    if !evidence.is_worth_a_word(taken) || relief.saved < peak.reserved / 100 * SAVED_PERCENT {
        return None;
    }
    let lost = peak.reserved - peak.active;
    let kinds: BTreeSet<BTreeSet<u64>> = steps.events.iter().skip(1).map(sizes_of).collect();
    let lengths = match kinds.len() {
        few @ 2..=FEW if few < warm.len() => {
            format!("Steps of {few} kinds alternate, each with sizes of its own")
        }
        _ => "Inputs are of another size in nearly every step".to_owned(),
    };
    let seen = vec![
        format!(
            "in half of the steps, {median} % or more of what is asked for is in blocks of sizes that the step \
             before did not have"
        ),
        format!(
            "{} after the second step took {} from the device while as much as they needed lay free in the cache",
            count(numbers.len() as u64, "request"),
            size(taken),
        ),
        format!(
            "at the peak {} is held and {} of it, {}, is free",
            size(peak.reserved),
            size(lost),
            percent(lost, peak.reserved),
        ),
        relief.sentence,
    ];
    Some(Finding {
        rule: "lengths",
        headline: format!(
            "{lengths}: {} lies free in cached blocks while more is taken from the device",
            size(lost)
        ),
        evidence: seen,
        remedy: format!(
            "PYTORCH_CUDA_ALLOC_CONF={expandable}; or pad to a few lengths, the longest batch first"
        ),
        bytes: lost,
        stacks: evidence.places(numbers, |_, a| a.taken),
    })
}

/// Whether it is a limit on splitting that keeps free blocks from being used.
fn max_split_is_to_blame(evidence: &Evidence<'_>) -> bool {
    let without = conf::with(evidence.subject.conf, "max_split_size_mb", None);
    evidence.settings.max_split_size().is_some() && Relief::of(evidence, &without).is_some()
}

/// The sizes of large blocks. (Small ones are in pools of their own, which hold next to nothing.)
fn sizes(born: &[Allocation]) -> BTreeSet<u64> {
    large(born).collect()
}

fn large(born: &[Allocation]) -> impl Iterator<Item = u64> {
    let sizes = born.iter().map(|a| a.bytes);
    sizes.filter(|&bytes| bytes > SMALL_LIMIT)
}

/// How much of what is asked for in large blocks is of no size of `before`, in percent.
fn new_percent(before: &BTreeSet<u64>, born: &[Allocation]) -> u64 {
    let all: u64 = large(born).sum();
    let new: u64 = large(born).filter(|bytes| !before.contains(bytes)).sum();
    new.saturating_mul(100).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, ROOMY, Scene, burst};
    use super::rule;

    /// Eight steps with tensors of so many MiB.
    fn train(program: &mut Program<'_>, length: impl Fn(u64) -> u64) {
        for step in 0..8 {
            program.mark(&format!("step {step}"));
            burst(program, 8, length(step) * MIB);
        }
    }

    #[test]
    fn sizes_that_change() {
        let found = ROOMY
            .find(rule, |program| train(program, |step| 20 + 6 * step))
            .unwrap();
        assert!(
            found.headline.contains("nearly every step"),
            "{}",
            found.headline
        );
        assert!(
            found.remedy.contains("expandable_segments:True"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn two_lengths_that_alternate() {
        let found = ROOMY.find(rule, |program| {
            let mut held = Vec::new();
            for step in 0..8 {
                program.mark(&format!("step {step}"));
                burst(program, 8, (20 + 13 * (step % 2)) * MIB);
                // Cuts the larger blocks, so that they are wanted again.
                held.push(program.alloc(21 * MIB, "kept"));
            }
            program.free_all(held);
        });
        let found = found.unwrap();
        assert!(
            found.headline.contains("Steps of 2 kinds alternate"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn the_same_sizes_at_every_step() {
        assert_eq!(ROOMY.find(rule, |program| train(program, |_| 30)), None);
    }

    #[test]
    fn sizes_that_expandable_segments_cut_anyway() {
        let expandable = Scene("expandable_segments:True", ROOMY.1, None);
        let found = expandable.find(rule, |program| train(program, |step| 20 + 6 * step));
        assert_eq!(found, None);
    }
}
