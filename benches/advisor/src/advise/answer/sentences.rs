//! The answer in sentences.

use coalesce_alloc::settings::keys::Key;
use coalesce_alloc::settings::written;
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::text::coverage::FROM_LIVE_BLOCKS;
use coalesce_bench::text::{Unit, capitalised, count, duration, quoted};
use coalesce_workloads::formats::snapshot::release::{Release, Releases};
use coalesce_workloads::op::Workload;

use super::super::others::OWN;
use super::super::request::Aim;
use super::super::search::TriedSettings;
use super::{Decision, Facts, FailureCause, Reason};
use crate::holders::Category;
use crate::texts::ROCM_WARNING;

/// How a process limits itself.
const LIMITS: &str =
    "torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction in the settings";

/// The answer, the most important sentence first.
pub(super) fn of(facts: &Facts<'_>, decision: &Decision<'_>) -> Vec<String> {
    let mut sentences: Vec<String> = leaks(facts).into_iter().chain(died(facts)).collect();
    sentences.extend(match decision {
        // It has been said that no setting ends a leak.
        Decision::Impossible | Decision::TooLarge(_) if facts.leak.is_some() => Vec::new(),
        Decision::Impossible => impossible(facts),
        Decision::TooLarge(least) => too_large(facts, least),
        Decision::Keep(reason) => keep(facts, reason),
        Decision::Change(best) => change(facts, best),
    });
    let is_unserved = matches!(decision, Decision::Impossible | Decision::TooLarge(_));
    if is_unserved && facts.leak.is_none() {
        let unknown =
            "What the program does after the failed request is not recorded, so it may need more.";
        sentences.extend(facts.ends_recorded().then(|| unknown.to_owned()));
        sentences.extend(largest_holders(facts));
    }
    sentences
}

/// What every step leaves, and how long that goes well.
fn leaks(facts: &Facts<'_>) -> Option<String> {
    let leak = facts.leak?;
    let from = match leak.stacks.first() {
        Some(site) => format!(" It comes from {site}."),
        None => String::new(),
    };
    let spare = facts.available().saturating_sub(facts.lower_bound());
    let until = if facts.failure.is_none() && facts.request.conditions.capacity != ROOMY {
        format!(
            " At this rate, the {} available are full after {}.",
            facts.available_text(),
            count(spare / leak.per_step.max(1), "more step")
        )
    } else {
        String::new()
    };
    Some(format!(
        "The program leaks: each step leaves {} that it never frees.{from}{until} No setting ends that.",
        facts.amount(leak.per_step)
    ))
}

/// What became of the program; none if no request fails.
fn died(facts: &Facts<'_>) -> Option<String> {
    let failure = facts.failure.as_ref()?;
    let who = match (failure.is_recorded, failure.is_handled) {
        (true, false) => "The program died",
        (true, true) => "A request failed (the program handled the error)",
        (false, _) => "Under the current settings, the program runs out of memory",
    };
    let available = facts.available_text();
    let request = in_both_units(facts, failure.request_bytes);
    let demand = facts.amount(failure.demand_bytes());
    Some(match facts.cause()? {
        FailureCause::TooMuchMemory if failure.demand_bytes() <= facts.available() => {
            let but = if facts.lower_bound() > facts.available() {
                "what the program requests at its peak does not"
            } else {
                "no setting that was tried gets it served"
            };
            format!(
                "{who} because it needs too much memory: the failed request for {request} and its tensors fit into the \
                 {available} available, in one piece, but {but}."
            )
        }
        FailureCause::TooMuchMemory => format!(
            "{who} because it needs too much memory, not because of fragmentation: with the failed request for \
             {request}, its tensors would take {demand}, and {available} is available."
        ),
        FailureCause::Leak => format!(
            "{who}: with the failed request for {request}, its tensors would take {demand} of the {available} available, \
             {} of it left by earlier steps.",
            facts.amount(facts.leak.map_or(0, |leak| leak.bytes))
        ),
        FailureCause::OwnLimit => format!(
            "{who} because it limits itself to {available} ({LIMITS}), while the device has {} beyond that: with the \
             failed request for {request}, its tensors would take {demand}.",
            facts.amount(facts.beyond_limit())
        ),
        FailureCause::Fragmentation => {
            let lost = if failure.free_bytes >= failure.request_bytes {
                "in pieces that could not serve the request"
            } else {
                "and the request needed a new segment"
            };
            let available = match facts.beyond_limit() {
                0 => format!("{available} available"),
                beyond => format!(
                    "{available} to which it limits itself ({LIMITS}; the device has {} beyond that)",
                    facts.amount(beyond)
                ),
            };
            format!(
                "{who} because of fragmentation: with the failed request for {request}, its tensors would take \
                 {demand} of the {available}, but the allocator held {}, {} of it free, {lost}.",
                facts.amount(failure.reserved_bytes),
                facts.amount(failure.free_bytes),
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
            format!("{holder} ({category}{})", facts.amount(holder.bytes))
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
    let demand = facts.lower_bound();
    vec![format!(
        "{}: the program requests {} at its peak, and {} is available. {}",
        no_setting(facts, "can help"),
        facts.amount(demand),
        facts.available_text(),
        must_go(facts, demand)
    )]
}

fn no_setting(facts: &Facts<'_>, what: &str) -> String {
    match facts.cause() {
        Some(FailureCause::OwnLimit) => format!("Under that limit, no setting {what}"),
        _ => format!("No setting {what}"),
    }
}

/// What to do where the program needs more than there is.
fn must_go(facts: &Facts<'_>, needs: u64) -> String {
    let (available, most) = (facts.available(), facts.request.most_available());
    // Of a limit that is known to lie between two amounts, the lower one is certain.
    let missing = facts.amount(needs.saturating_sub(available));
    let bound = if available < most {
        "up to"
    } else {
        "at least"
    };
    if facts.beyond_limit() > 0 {
        return format!(
            "Raise the limit to at least {}, or free {bound} {missing}.",
            facts.amount(needs)
        );
    }
    format!("{} {missing} must go.", capitalised(bound))
}

fn too_large(facts: &Facts<'_>, least: &TriedSettings) -> Vec<String> {
    let needs = match least.minimum.known() {
        Some(needs) if needs <= facts.available() => format!(
            "with {}, it completes with {}, but not with the {} available, where the allocator keeps other blocks. Limit the \
             process to the smaller amount (torch.cuda.set_per_process_memory_fraction).",
            quoted(&least.conf),
            facts.amount(needs),
            facts.available_text(),
        ),
        Some(needs) => {
            let under_own = facts.needs_under_own_policy();
            let fits_under_own = under_own.is_some_and(|own| own <= facts.available());
            let must_go = if fits_under_own && facts.beyond_limit() == 0 {
                String::new()
            } else {
                format!(" {}", must_go(facts, needs))
            };
            format!(
                "it needs least with {}, {}, and {} is available.{must_go}",
                quoted(&least.conf),
                facts.amount(needs),
                facts.available_text(),
            )
        }
        None => format!("{} is available.", facts.available_text()),
    };
    vec![format!(
        "{}: {needs} At its peak it requests {}.",
        no_setting(facts, "that was tried makes the program fit"),
        facts.amount(facts.lower_bound())
    )]
}

fn keep(facts: &Facts<'_>, reason: &Reason<'_>) -> Vec<String> {
    let which = match facts.request.present {
        "" => "The default settings",
        _ => "The current settings",
    };
    let figures = present_figures(facts);
    match reason {
        Reason::Leaks => vec![format!("{which} are kept.{figures}")],
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
    let aim = facts.request.aim;
    let Some(score) = facts.present().and_then(|present| present.score(aim)) else {
        return String::new();
    };
    let requested = facts.amount(facts.lower_bound());
    match aim {
        Aim::LeastCapacity => format!(
            " The program completes with {} of memory and requests {requested} at its peak.",
            facts.amount(score)
        ),
        Aim::DriverTime => format!(" Driver calls take {}.", duration(score)),
        Aim::Reserved => format!(
            " The program holds {} at its peak and requests {requested} of it.{}",
            facts.amount(score),
            smallest_device(facts, facts.present(), None)
        ),
    }
}

/// The least memory with which the program completes, if the device has more.
fn smallest_device(
    facts: &Facts<'_>,
    then: Option<&TriedSettings>,
    now: Option<&TriedSettings>,
) -> String {
    let needs = |tried: Option<&TriedSettings>| {
        let score = tried?.score(Aim::LeastCapacity)?;
        Some(facts.amount(score))
    };
    match (needs(then), needs(now)) {
        (None, _) => String::new(),
        (Some(then), Some(now)) if then != now => {
            format!(" The least memory with which it completes is {then} instead of {now}.")
        }
        (Some(then), _) => format!(" The least memory with which it completes is {then}."),
    }
}

fn change(facts: &Facts<'_>, best: &TriedSettings) -> Vec<String> {
    let present = facts.present();
    let mut sentences = Vec::new();
    if let Some(leak) = facts.leak {
        let needs = best.score(Aim::LeastCapacity).unwrap_or(0);
        sentences.push(format!(
            "The settings below only delay it: under them, the recorded steps need {}, and {} would fit.",
            facts.amount(needs),
            count(facts.available().saturating_sub(needs) / leak.per_step.max(1), "more step")
        ));
    } else if facts.failure.is_some() {
        let served = if facts.ends_recorded() {
            "the same run gets this request served"
        } else {
            "it completes"
        };
        let available = facts.available();
        sentences.push(match best.score(Aim::LeastCapacity) {
            Some(needs) => {
                let spare = match available.saturating_sub(needs) {
                    0 => "all that is available".to_owned(),
                    spare => format!("{} less than available", facts.amount(spare)),
                };
                format!(
                    "With the settings below, {served}: it needs {}, {spare}.",
                    facts.amount(needs)
                )
            }
            None => format!("With the settings below, {served}."),
        });
        if facts.ends_recorded() {
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
            let saved = facts.amount(before.saturating_sub(after));
            format!(" instead of {}, {up_to}{saved} less", facts.amount(before))
        }
    };
    let requested = facts.amount(facts.lower_bound());
    match aim {
        Aim::LeastCapacity => format!(
            "With the settings below, the program completes with {at_least}{} of memory{instead}. It requests \
             {requested} at its peak.",
            facts.amount(after)
        ),
        Aim::DriverTime => format!(
            "With the settings below, driver calls take {}{instead}, by the cost profile '{}'.",
            duration(after),
            facts.request.profile.name
        ),
        Aim::Reserved => format!(
            "With the settings below, the program holds {at_least}{} at its peak{instead}. It requests \
             {requested} of it.{}",
            facts.amount(after),
            smallest_device(facts, Some(best), facts.present())
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
    let run = format!("COALESCE_TORCH_ALLOC=policy={OWN} python -m coalesce_torch PROGRAM.py");
    match (needs > available, own <= available) {
        (true, true) => Some(format!(
            "With Coalesce's own allocator in place of PyTorch's it fits: it needs {}, {} less than available. To run it so: \
             {run}",
            facts.amount(own),
            facts.amount(available - own)
        )),
        (true, false) => None,
        // Less than 3 % is not worth another allocator.
        (false, _) if own.saturating_mul(100) > needs.saturating_mul(97) => None,
        (false, _) => Some(format!(
            "With Coalesce's own allocator in place of PyTorch's it needs {} instead of {}. To run it so: {run}",
            facts.amount(own),
            facts.amount(needs)
        )),
    }
}

/// What other aims would gain over the chosen settings, if it is much.
pub(super) fn other_aims(facts: &Facts<'_>, chosen: &str) -> Vec<String> {
    let search = facts.search;
    let Some(chosen) = search.tried.iter().find(|tried| tried.conf == chosen) else {
        return Vec::new();
    };
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
            Aim::LeastCapacity => (
                "to need the least memory",
                facts.amount(now),
                facts.amount(then),
            ),
            Aim::DriverTime => (
                "to spend the least time in driver calls",
                duration(now),
                duration(then),
            ),
            Aim::Reserved => (
                "to hold the least memory on this device",
                facts.amount(now),
                facts.amount(then),
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

/// What must be known about settings on the platform of a program.
pub(super) fn platform_warning(releases: Releases, conf: &str) -> Option<String> {
    let mut keys = written(conf).map(|(key, _)| key);
    let is_meant = releases.is_rocm && keys.any(|key| key == "expandable_segments");
    is_meant.then(|| ROCM_WARNING.to_owned())
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
