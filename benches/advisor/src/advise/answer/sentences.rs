//! The answer in sentences.

use coalesce_alloc::settings::keys::Key;
use coalesce_alloc::settings::written;
use coalesce_bench::text::coverage::FROM_LIVE_BLOCKS;
use coalesce_bench::text::{Unit, capitalised, duration, quoted};
use coalesce_workloads::formats::snapshot::release::{Release, Releases};
use coalesce_workloads::op::Workload;

use super::super::others::OWN;
use super::super::request::Aim;
use super::super::search::TriedSettings;
use super::{Decision, Facts, FailureCause, Reason};
use crate::holders::Category;

/// The answer, the most important sentence first.
pub(super) fn of(facts: &Facts<'_>, decision: &Decision<'_>) -> Vec<String> {
    let mut sentences: Vec<String> = died(facts).into_iter().collect();
    sentences.extend(match decision {
        Decision::Impossible => impossible(facts),
        Decision::TooLarge(least) => too_large(facts, least),
        Decision::Keep(reason) => keep(facts, reason),
        Decision::Change(best) => change(facts, best),
    });
    if matches!(decision, Decision::Impossible | Decision::TooLarge(_)) {
        sentences.extend(largest_holders(facts));
    }
    sentences
}

/// What became of the program; none if no request fails.
fn died(facts: &Facts<'_>) -> Option<String> {
    let failure = facts.failure.as_ref()?;
    let amount = |bytes| facts.unit().amount(bytes);
    let who = match (failure.is_recorded, failure.is_handled) {
        (true, false) => "The program died",
        (true, true) => "A request failed (the program handled the error)",
        (false, _) => "Under the current settings, the program runs out of memory",
    };
    let available = facts.available_text();
    let request = in_both_units(facts, failure.request_bytes);
    let demand = amount(failure.demand_bytes());
    Some(match facts.cause()? {
        FailureCause::TooMuchMemory => format!(
            "{who} because it needs too much memory, not because of fragmentation: with the failed request for \
             {request}, its tensors would take {demand}, and {available} is available."
        ),
        FailureCause::Fragmentation => {
            let lost = if failure.free_bytes >= failure.request_bytes {
                "in pieces that could not serve the request"
            } else {
                "and the request needed a new segment"
            };
            format!(
                "{who} because of fragmentation: with the failed request for {request}, its tensors would take \
                 {demand} of the {available} available, but the allocator held {}, {} of it free, {lost}.",
                amount(failure.reserved_bytes),
                amount(failure.free_bytes),
            )
        }
    })
}

/// Who holds most memory, where less must be requested.
fn largest_holders(facts: &Facts<'_>) -> Option<String> {
    const MOST: usize = 3;
    let holders: Vec<String> = facts
        .holdings
        .holders
        .iter()
        .take(MOST)
        .map(|holder| {
            let category = match holder.category {
                Category::Unknown => String::new(),
                known => format!("{}, ", known.name()),
            };
            format!("{holder} ({category}{})", facts.unit().amount(holder.bytes))
        })
        .collect();
    (!holders.is_empty()).then(|| format!("The largest holders are {}.", holders.join("; ")))
}

/// An amount in the unit of the page and, as in PyTorch's messages, in the largest unit that fits.
fn in_both_units(facts: &Facts<'_>, bytes: u64) -> String {
    let own = Unit::of(bytes);
    match facts.unit() {
        unit if unit == own => own.amount(bytes),
        unit => format!("{} ({})", unit.amount(bytes), own.amount(bytes)),
    }
}

fn impossible(facts: &Facts<'_>) -> Vec<String> {
    let amount = |bytes| facts.unit().amount(bytes);
    let demand = facts.lower_bound();
    vec![format!(
        "No setting can help: the program requests {} at its peak, and {} is available. At least {} must go.",
        amount(demand),
        facts.available_text(),
        amount(demand.saturating_sub(facts.request.most_available()))
    )]
}

fn too_large(facts: &Facts<'_>, least: &TriedSettings) -> Vec<String> {
    let amount = |bytes| facts.unit().amount(bytes);
    let needs = match least.minimum.known() {
        Some(needs) => {
            let missing = needs.saturating_sub(facts.request.most_available());
            let under_own = facts.needs_under_own_policy();
            let must_go = if under_own.is_some_and(|own| own <= facts.available()) {
                String::new()
            } else {
                format!(" At least {} must go.", amount(missing))
            };
            format!(
                "it needs least with {}, {}, and {} is available.{must_go}",
                quoted(&least.conf),
                amount(needs),
                facts.available_text(),
            )
        }
        None => format!("{} is available.", facts.available_text()),
    };
    vec![format!(
        "No setting that was tried makes the program fit: {needs} At its peak it requests {}.",
        amount(facts.lower_bound())
    )]
}

fn keep(facts: &Facts<'_>, reason: &Reason<'_>) -> Vec<String> {
    let which = match facts.request.present {
        "" => "The default settings",
        _ => "The current settings",
    };
    let figures = present_figures(facts);
    match reason {
        Reason::Unreliable(best, stability) => vec![
            format!("{which} are fine.{figures}"),
            format!(
                "{} is better in this run, but not reliably so: it is better in {} of {} perturbed runs.",
                capitalised(&quoted(&best.conf)),
                stability.better(facts.request.aim).unwrap_or(0),
                stability.copies
            ),
        ],
        Reason::AsGood if facts.search.extent.left > 0 => vec![format!(
            "Of the settings that were tried, none are better than the current ones by more than makes a \
             difference; time ran out for {} more (--time-limit).{figures}",
            facts.search.extent.left
        )],
        Reason::AsGood => vec![format!(
            "{which} are fine: none that were tried are better by more than makes a difference.{figures}"
        )],
    }
}

/// The figures of the current settings for the aim.
fn present_figures(facts: &Facts<'_>) -> String {
    let amount = |bytes| facts.unit().amount(bytes);
    let aim = facts.request.aim;
    let Some(score) = facts.present().and_then(|present| present.score(aim)) else {
        return String::new();
    };
    let requested = amount(facts.lower_bound());
    match aim {
        Aim::LeastCapacity => format!(
            " The program completes with {} of memory and requests {requested} at its peak.",
            amount(score)
        ),
        Aim::DriverTime => format!(" Driver calls take {}.", duration(score)),
        Aim::Reserved => format!(
            " The program holds {} at its peak and requests {requested} of it.",
            amount(score)
        ),
    }
}

fn change(facts: &Facts<'_>, best: &TriedSettings) -> Vec<String> {
    let present = facts.present();
    let mut sentences = Vec::new();
    let amount = |bytes| facts.unit().amount(bytes);
    if let Some(failure) = &facts.failure {
        let served = if failure.is_recorded && !failure.is_handled {
            "the same run gets this request served"
        } else {
            "it completes"
        };
        let (low, high) = (facts.available(), facts.request.most_available());
        sentences.push(match best.score(Aim::LeastCapacity) {
            Some(needs) if facts.is_uncertain(needs) => format!(
                "The settings below may get this request served: they need {}, and the limit is only known to \
                 lie between {} and {}.",
                amount(needs),
                amount(low),
                amount(high)
            ),
            Some(needs) => format!(
                "With the settings below, {served}: it needs {}, {} less than available.",
                amount(needs),
                amount(low.saturating_sub(needs))
            ),
            None => format!("With the settings below, {served}."),
        });
        if failure.is_recorded && !failure.is_handled {
            sentences
                .push("What the program does after the failed request is not recorded.".to_owned());
        }
    } else {
        sentences.push(gain(facts, best));
    }
    if is_lower_bound(facts, best) {
        sentences.push(format!("These settings {FROM_LIVE_BLOCKS}."));
    }
    sentences.extend(present.and_then(|present| slower_driver(facts, present, best)));
    sentences
}

/// Whether the figures under these settings do not begin with the recorded segments.
fn is_lower_bound(facts: &Facts<'_>, settings: &TriedSettings) -> bool {
    let start = facts.request.workload.start();
    start.is_some_and(|start| start.is_lower_bound(&settings.conf))
}

/// What the advised settings gain for the aim.
fn gain(facts: &Facts<'_>, best: &TriedSettings) -> String {
    let aim = facts.request.aim;
    let amount = |bytes| facts.unit().amount(bytes);
    let before = facts.present().and_then(|present| present.score(aim));
    let after = best.score(aim).unwrap_or(0);
    let is_bound = is_lower_bound(facts, best);
    let (at_least, up_to) = if is_bound {
        ("at least ", "up to ")
    } else {
        ("", "")
    };
    let instead = match (aim, before) {
        (_, None) => String::new(),
        (Aim::DriverTime, Some(before)) => format!(" instead of {}", duration(before)),
        (_, Some(before)) => {
            let saved = amount(before.saturating_sub(after));
            format!(" instead of {}, {up_to}{saved} less", amount(before))
        }
    };
    let requested = amount(facts.lower_bound());
    match aim {
        Aim::LeastCapacity => format!(
            "With the settings below, the program completes with {at_least}{} of memory{instead}. It requests \
             {requested} at its peak.",
            amount(after)
        ),
        Aim::DriverTime => format!(
            "With the settings below, driver calls take {}{instead}, by the cost profile '{}'.",
            duration(after),
            facts.request.profile.name
        ),
        Aim::Reserved => format!(
            "With the settings below, the program holds {at_least}{} at its peak{instead}. It requests \
             {requested} of it.",
            amount(after)
        ),
    }
}

/// A warning if driver calls take more than a quarter longer.
fn slower_driver(
    facts: &Facts<'_>,
    present: &TriedSettings,
    best: &TriedSettings,
) -> Option<String> {
    let (now, then) = (&present.on_device, &best.on_device);
    // Without calls there is nothing to compare with.
    let is_slower = now.driver_time_ns > 0 && then.driver_time_ns > now.driver_time_ns * 5 / 4;
    if facts.request.aim == Aim::DriverTime || !is_slower || !now.fits() {
        return None;
    }
    let times = then.driver_time_ns as f64 / now.driver_time_ns as f64;
    Some(format!(
        "Driver calls then take {times:.1} times as long: {} instead of {}.",
        duration(then.driver_time_ns),
        duration(now.driver_time_ns)
    ))
}

/// What the policy of our own would gain over settings that need so many bytes, if it is much: it makes the program fit,
/// or needs much less.
pub(super) fn own_policy(facts: &Facts<'_>, needs: u64) -> Option<String> {
    let own = facts.needs_under_own_policy()?;
    let available = facts.available();
    let amount = |bytes| facts.unit().amount(bytes);
    let run = format!("COALESCE_TORCH_ALLOC=policy={OWN} python -m coalesce_torch PROGRAM.py");
    match (needs > available, own <= available) {
        (true, true) => Some(format!(
            "With Coalesce's own allocator in place of PyTorch's it fits: it needs {}, {} less than available. To run it so: \
             {run}",
            amount(own),
            amount(available - own)
        )),
        (true, false) => None,
        // Less than 3 % is not worth another allocator.
        (false, _) if own.saturating_mul(100) > needs.saturating_mul(97) => None,
        (false, _) => Some(format!(
            "With Coalesce's own allocator in place of PyTorch's it needs {} instead of {}. To run it so: {run}",
            amount(own),
            amount(needs)
        )),
    }
}

/// What other aims would gain over the chosen settings, if it is much.
pub(super) fn other_aims(facts: &Facts<'_>, chosen: &str) -> Vec<String> {
    let search = facts.search;
    let Some(chosen) = search.tried.iter().find(|tried| tried.conf == chosen) else {
        return Vec::new();
    };
    let amount = |bytes| facts.unit().amount(bytes);
    let others = Aim::ALL
        .into_iter()
        .filter(|&other| other != facts.request.aim);
    let better = others.filter_map(|other| {
        let best = facts.tried(search.best(other))?;
        let (now, then) = (chosen.score(other)?, best.score(other)?);
        // A gain of less than a tenth is not worth another choice.
        if then == now || then.saturating_mul(10) > now.saturating_mul(9) {
            return None;
        }
        let (goal, now, then) = match other {
            Aim::LeastCapacity => ("to need the least memory", amount(now), amount(then)),
            Aim::DriverTime => (
                "to spend the least time in driver calls",
                duration(now),
                duration(then),
            ),
            Aim::Reserved => (
                "to hold the least memory on this device",
                amount(now),
                amount(then),
            ),
        };
        let conf = quoted(&best.conf);
        Some(format!(
            "{}, use {conf}: {then} instead of {now}.",
            capitalised(goal)
        ))
    });
    better.collect()
}

/// The releases that settings need, if the release of the program is not known: those of keys that many
/// releases in use lack.
pub(super) fn required_versions(releases: Releases, conf: &str) -> impl Iterator<Item = String> {
    const RECENT: Release = Release {
        major: 2,
        minor: 10,
    };
    let is_assumed = releases == Releases::REFERENCE;
    let keys = written(conf).filter(move |_| is_assumed);
    keys.filter_map(|(key, _)| {
        let since = Key::named(key)
            .map(|key| key.since)
            .filter(|since| *since >= RECENT)?;
        Some(format!("{key} requires PyTorch {since} or later."))
    })
}
