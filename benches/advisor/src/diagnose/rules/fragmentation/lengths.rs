//! Inputs of different lengths: blocks freed by one step do not fit the requests of the next.
//!
//! **Criterion.** In half of the warm steps, at least [`NEW_PERCENT`] % of the bytes requested in large
//! blocks have sizes that the previous step did not use. Warm steps that do not empty the cache took a
//! significant amount from the device although enough memory for each request was free in the cache.
//! Expandable segments are disabled, and with them the peak of reserved memory is lower by
//! [`SAVED_PERCENT`] %.
//!
//! **Reason.** A cached block serves smaller requests, which leave a remainder, and no larger ones. When
//! sizes change in every step, the cache fills up with remainders that fit no request.

use std::collections::BTreeSet;

use coalesce_alloc::pytorch::size::SMALL_LIMIT;
use coalesce_bench::text::{Unit, amount, count, percent_of};

use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::improvement::Improvement;
use crate::diagnose::log::Allocation;
use crate::diagnose::{Finding, SEE_ADVISE};

/// Workspaces change size even if inputs do not.
const NEW_PERCENT: u64 = 25;
/// A smaller saving does not justify the cost of mapping pages.
const SAVED_PERCENT: u64 = 5;
/// Up to this many kinds of steps are reported by their number.
const FEW: usize = 8;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.settings.expandable_segments() || max_split_is_the_cause(evidence) {
        return None;
    }
    let steps = evidence.steps.as_ref()?;
    let (warm, log) = (steps.warm(), &evidence.log);
    let sizes_of = |events| sizes(log.born_in(events));
    let pairs = steps.events.iter().skip(1).zip(warm);
    let mut new_percents: Vec<u64> = pairs
        .map(|(before, now)| new_percent(&sizes_of(before), log.born_in(now)))
        .collect();
    new_percents.sort_unstable();
    let median = *new_percents.get(new_percents.len() / 2)?;
    if median < NEW_PERCENT {
        return None;
    }
    let is_emptied = |a: &Allocation| {
        let step = warm.iter().find(|step| step.contains(&a.born));
        step.is_some_and(|step| log.emptied.iter().any(|event| step.contains(event)))
    };
    let in_vain = evidence.born_in(steps.warm_events()?).filter(|(_, a)| {
        let before = log.level(a.born.saturating_sub(1));
        a.taken > 0 && !a.failed && before.reserved - before.active >= a.block && !is_emptied(a)
    });
    let taken: Vec<(usize, u64)> = in_vain.map(|(index, a)| (index, a.taken)).collect();
    let peak = evidence.peak_level();
    let expandable = evidence.expandable();
    let improvement = Improvement::of(evidence, &expandable)?;
    if !evidence.is_significant(total(&taken))
        || improvement.saved < peak.reserved / 100 * SAVED_PERCENT
    {
        return None;
    }
    let lost = peak.reserved - peak.active;
    let kinds: BTreeSet<BTreeSet<u64>> = steps.events.iter().skip(1).map(sizes_of).collect();
    let lengths = match kinds.len() {
        few @ 2..=FEW if few < warm.len() => {
            format!("Steps of {few} kinds alternate, each with its own sizes")
        }
        _ => "Input sizes change in nearly every step".to_owned(),
    };
    let unit = Unit::of(peak.reserved);
    let facts = vec![
        format!(
            "In half of the steps, at least {median} % of the requested bytes are in blocks of sizes that the \
             previous step did not use"
        ),
        format!(
            "After the second step, {} took {} from the device although enough memory was free in the cache",
            count(taken.len() as u64, "request"),
            amount(total(&taken)),
        ),
        format!(
            "At the peak, {} of the {} reserved is free, {}",
            unit.amount(lost),
            unit.amount(peak.reserved),
            percent_of(lost, peak.reserved),
        ),
        improvement.sentence,
    ];
    Some(Finding {
        rule: "lengths",
        headline: format!(
            "{lengths}: {} is free in cached blocks while new memory is taken from the device",
            amount(lost)
        ),
        evidence: facts,
        remedy: format!(
            "Pad inputs to a few lengths and run the longest batch first. {SEE_ADVISE}"
        ),
        conf: Some(expandable),
        bytes: lost,
        stacks: evidence.call_sites(taken),
    })
}

/// Whether a limit on splitting keeps free blocks from being used.
fn max_split_is_the_cause(evidence: &Evidence<'_>) -> bool {
    let without = || evidence.conf_without("max_split_size_mb");
    evidence.settings.max_split_size().is_some() && Improvement::of(evidence, &without()).is_some()
}

/// The sizes of large blocks. The small pool is negligible.
fn sizes(born: &[Allocation]) -> BTreeSet<u64> {
    large(born).collect()
}

fn large(born: &[Allocation]) -> impl Iterator<Item = u64> {
    let sizes = born.iter().map(|a| a.bytes);
    sizes.filter(|&bytes| bytes > SMALL_LIMIT)
}

/// The percentage of bytes requested in large blocks whose size is not in `before`.
fn new_percent(before: &BTreeSet<u64>, born: &[Allocation]) -> u64 {
    let all: u64 = large(born).sum();
    let new: u64 = large(born).filter(|bytes| !before.contains(bytes)).sum();
    new.saturating_mul(100).checked_div(all).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY, Scene, burst, hold, lines};

    /// Eight steps with tensors of `length` MiB.
    fn train(program: &mut Program<'_>, length: impl Fn(u64) -> u64) {
        for step in 0..8 {
            program.mark(&format!("step {step}"));
            burst(program, 8, length(step) * MIB);
        }
    }

    #[test]
    fn sizes_change_in_every_step() {
        let found = ROOMY
            .find(rule, |program| train(program, |step| 20 + 6 * step))
            .unwrap();
        assert!(
            found.headline.contains("nearly every step"),
            "{}",
            found.headline
        );
        assert!(
            found.conf.as_deref() == Some("expandable_segments:True"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn two_lengths_alternate() {
        let found = ROOMY.find(rule, |program| {
            let mut held = Vec::new();
            for step in 0..8 {
                program.mark(&format!("step {step}"));
                burst(program, 8, (20 + 13 * (step % 2)) * MIB);
                // Splits the larger blocks, so that new ones are needed.
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
    fn the_same_sizes_in_every_step() {
        assert_eq!(ROOMY.find(rule, |program| train(program, |_| 30)), None);
    }

    #[test]
    fn expandable_segments_are_enabled() {
        let expandable = Scene::with_conf("expandable_segments:True");
        let found = expandable.find(rule, |program| train(program, |step| 20 + 6 * step));
        assert_eq!(found, None);
    }

    /// Sizes in MiB of each step, freed together. A tensor that stays then splits a block that the next step needs.
    fn run(program: &mut Program<'_>, steps: &[&[u64]]) {
        for (step, sizes) in steps.iter().enumerate() {
            program.mark(&format!("step {step}"));
            let tensors: Vec<_> = sizes
                .iter()
                .map(|mib| program.alloc(mib * MIB, "mm"))
                .collect();
            program.scratch(MIB / 2, "small");
            program.free_all(tensors);
            hold(program, 1, 21 * MIB);
        }
    }

    #[test]
    fn changing_sizes_in_full() {
        let found = ROOMY.find(rule, |program| train(program, |step| 20 + 6 * step));
        assert_eq!(
            lines(found),
            [
                "1. Input sizes change in nearly every step: 2.08 GiB is free in cached blocks while new memory \
                 is taken from the device [lengths]",
                "- In half of the steps, at least 100 % of the requested bytes are in blocks of sizes that the \
                 previous step did not use",
                "- After the second step, 48 requests took 2.20 GiB from the device although enough memory was \
                 free in the cache",
                "- At the peak, 2.08 GiB of the 2.56 GiB reserved is free, 81.1 %",
                "- With 'expandable_segments:True', 0.49 GiB is reserved at the peak instead of 2.56 GiB, and \
                 memory is taken from or returned to the device 18 times instead of 64",
                "48 × several: 2.20 GiB",
                "> Pad inputs to a few lengths and run the longest batch first. `coalesce advise` ranks these \
                 settings among others",
                "2231369728 bytes, with 'expandable_segments:True'",
            ]
        );
    }

    /// Of 160 MiB in each step, 40 are in blocks of new sizes; of 164 MiB, it is 24 %.
    #[test]
    fn a_quarter_is_in_blocks_of_new_sizes() {
        let even: [&[u64]; 2] = [&[60, 39, 40], &[60, 39, 20, 20]];
        let less: [&[u64]; 2] = [&[60, 43, 40], &[60, 43, 20, 20]];
        let find = |[a, b]: [&'static [u64]; 2]| {
            ROOMY.find(rule, move |program| run(program, &[a, b, a, b, a, b]))
        };
        assert_eq!(
            lines(find(even)),
            [
                "1. Steps of 2 kinds alternate, each with its own sizes: 118.0 MiB is free in cached blocks while \
                 new memory is taken from the device [lengths]",
                "- In half of the steps, at least 25 % of the requested bytes are in blocks of sizes that the \
                 previous step did not use",
                "- After the second step, 4 requests took 160.0 MiB from the device although enough memory was \
                 free in the cache",
                "- At the peak, 118.0 MiB of the 342.0 MiB reserved is free, 34.5 %",
                "- With 'expandable_segments:True', 262.0 MiB is reserved at the peak instead of 342.0 MiB, and \
                 memory is taken from or returned to the device 9 times instead of 10",
                "4 × mm: 160.0 MiB",
                "> Pad inputs to a few lengths and run the longest batch first. `coalesce advise` ranks these \
                 settings among others",
                "123731968 bytes, with 'expandable_segments:True'",
            ]
        );
        assert_eq!(find(less), None);
    }

    /// The free memory lies in two blocks.
    #[test]
    fn exactly_as_much_is_free_as_requested() {
        let (a, b): (&[u64], &[u64]) = (&[18, 18], &[36]);
        let found = ROOMY.find(rule, |program| {
            for (step, sizes) in [a, a, b, a].iter().enumerate() {
                program.mark(&format!("step {step}"));
                let tensors: Vec<_> = sizes
                    .iter()
                    .map(|mib| program.alloc(mib * MIB, "mm"))
                    .collect();
                program.free_all(tensors);
            }
        });
        assert_eq!(
            lines(found)[2],
            "- After the second step, 1 request took 36.0 MiB from the device although enough memory was free in \
             the cache"
        );
    }

    /// Of 1,920 MiB reserved, expandable segments save 96.
    #[test]
    fn five_percent_are_saved() {
        let (a, b): (&[u64], &[u64]) = (&[60, 39, 40], &[60, 39, 20, 20]);
        let find = |small: u64| {
            ROOMY.find(rule, move |program| {
                hold(program, 1, 1576 * MIB);
                hold(program, small, MIB);
                run(program, &[a, b, a, b, a, b]);
            })
        };
        assert!(find(3).is_some());
        assert_eq!(find(4), None, "of 1,922 MiB");
    }

    /// The middle of the shares, sorted: 0 in the first steps, and then 100 %.
    #[test]
    fn half_of_the_warm_steps() {
        let (a, b, c): (&[u64], &[u64], &[u64]) = (&[30, 30], &[36, 36], &[44, 44]);
        let find = |steps: &[&[u64]]| ROOMY.find(rule, |program| run(program, steps));
        assert!(find(&[a, a, a, a, b, c]).is_some(), "two of four");
        assert_eq!(find(&[a, a, a, a, a, b, c]), None, "two of five");
        assert_eq!(find(&[a, a]), None, "no warm steps");
    }

    #[test]
    fn kinds_of_steps() {
        let headline = |kinds: u64, steps: u64| {
            let found = ROOMY.find(rule, |program| {
                for step in 0..steps {
                    program.mark(&format!("step {step}"));
                    burst(program, 4, (20 + 13 * (step % kinds)) * MIB);
                    hold(program, 1, 19 * MIB);
                }
            });
            let headline = found.unwrap().headline;
            headline.split_once(':').unwrap().0.to_owned()
        };
        let changing = "Input sizes change in nearly every step";
        assert_eq!(
            headline(8, 20),
            "Steps of 8 kinds alternate, each with its own sizes"
        );
        assert_eq!(headline(9, 20), changing);
        assert_eq!(
            headline(5, 8),
            "Steps of 5 kinds alternate, each with its own sizes"
        );
        assert_eq!(headline(5, 7), changing, "five kinds of five warm steps");
    }

    /// This rule ignores memory that the program takes again after it emptied the cache.
    #[test]
    fn steps_that_empty_the_cache_do_not_count() {
        let find = |emptied: &'static [u64]| {
            ROOMY.find(rule, move |program| {
                for step in 0..8 {
                    program.mark(&format!("step {step}"));
                    burst(program, 8, (20 + 6 * step) * MIB);
                    if emptied.contains(&step) {
                        program.empty_cache();
                    }
                }
            })
        };
        assert_eq!(
            lines(find(&[5]))[2],
            "- After the second step, 32 requests took 1.38 GiB from the device although enough memory was free \
             in the cache"
        );
        assert_eq!(find(&[2, 3, 4, 5, 6, 7]), None);
    }

    /// Its rule reports it.
    #[test]
    fn a_limit_on_splitting_is_the_cause() {
        let find = |conf: &'static str| {
            Scene::with_conf(conf).find(rule, |program| train(program, |step| 20 + 6 * step))
        };
        assert!(
            find("max_split_size_mb:500").is_some(),
            "removing it changes nothing"
        );
        // Without the limit, larger blocks serve all later requests.
        let shrinking = Scene::with_conf("max_split_size_mb:20");
        let found = shrinking.find(rule, |program| train(program, |step| 300 - 30 * step));
        assert_eq!(found, None);
    }
}
