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
use crate::diagnose::finding::{AT_PEAK, Finding, SEE_ADVISE};
use crate::diagnose::improvement::Improvement;
use crate::diagnose::log::Allocation;

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
            "{AT_PEAK}, {} of the {} reserved was free, {}",
            unit.amount(lost),
            unit.amount(peak.reserved),
            percent_of(lost, peak.reserved),
        ),
        improvement.sentence,
    ];
    Some(Finding {
        headline: format!(
            "{lengths}: {} was free in blocks of other sizes when reserved memory reached its peak",
            amount(lost)
        ),
        evidence: facts,
        remedy: format!(
            "Pad inputs to a few lengths and run the longest batch first. {SEE_ADVISE}"
        ),
        conf: Some(expandable),
        bytes: lost,
        stacks: evidence.call_sites(taken),
        ..Finding::default()
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
