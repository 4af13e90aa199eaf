//! Which settings are advised. This is the rule, and the reason of each part.
//!
//! **Following the advice makes nothing worse.** If the program completes under the current settings, other settings are
//! considered only if, on the same device, the program
//!
//! - holds no more memory with them;
//! - repeats no more requests after emptying its cache;
//! - needs no larger device, or returns no memory while it runs;
//! - spends no more time in the driver than [`is_bearable`] allows.
//!
//! If the program does not complete, all settings with which it completes are considered. A person who names another aim than
//! memory held accepts what it costs: these conditions do not apply then.
//!
//! **A setting that never returns memory to the device** while the program runs is preferred: it completes on every device
//! that is as large as what it holds, and the advice is the one that holds least. If the device is so small that each
//! setting returns memory, the advice is the setting that needs the smallest device. It leaves the most room for a run that
//! needs more.
//!
//! **Small differences do not decide.** A recording is one run, and the next one differs. Among settings within
//! [`NEAR`] of the best, these are preferred, one after another:
//!
//! 1. no more repeated requests than others, beyond one in a thousand: each stops the GPU;
//! 2. the least memory held, because that is what `nvidia-smi` shows and what others cannot have;
//! 3. the least time in the driver, if the difference can be noticed;
//! 4. the current settings, then the defaults, then `expandable_segments:True`, which people know, then the fewest keys.
//!
//! The bound on driver time is a multiple of what the default settings take, not the current ones. Otherwise the advice
//! for a program that follows the advice could go on to slower and slower settings.

use std::cmp::Reverse;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::settings::written;

use super::request::Aim;
use super::search::{PRESENT, Search, TriedSettings};

/// A difference of this part does not decide: 2 %.
pub(super) const NEAR: u64 = 50;
/// Driver time may grow to this multiple of what the defaults take,
const BEARABLE_TIMES: u64 = 3;
/// or by this much, in ns.
const BEARABLE_NS: u64 = 100_000_000;
/// A difference of driver time that nobody notices, in ns.
const UNNOTICED_NS: u64 = 100_000_000;
/// Repeated requests that nobody notices: one of so many requests.
const REQUESTS_PER_RETRY: u64 = 1000;

/// The index of the settings that were found to be the ones to advise for an aim.
pub(super) fn of(search: &Search<'_>, aim: Aim) -> Option<usize> {
    preferred(&search.tried, search.simulator.demand.allocations, aim)
}

/// The index of the settings to advise for an aim, to a program that makes so many requests; `None` if it completes under
/// none.
fn preferred(tried: &[TriedSettings], requests: u64, aim: Aim) -> Option<usize> {
    let present = tried.get(PRESENT)?;
    let usual_ns = usual_ns(tried, present);
    let completes = tried.iter().any(TriedSettings::fits);
    // Who names another aim accepts what it costs.
    let is_free = |index| index == PRESENT || !present.fits() || aim != Aim::Reserved;
    let is_considered = |(index, tried): &(usize, &TriedSettings)| {
        tried.score(aim).is_some()
            && (tried.fits() || !completes)
            && (is_free(*index) || is_no_worse(tried, present, usual_ns))
    };
    let mut good: Vec<(usize, &TriedSettings)> =
        tried.iter().enumerate().filter(is_considered).collect();
    let returns = |tried: &TriedSettings| u64::from(!tried.on_device.had_room());
    let is_roomy = good.iter().any(|(_, tried)| returns(tried) == 0);
    let goal = match aim {
        Aim::Reserved if !is_roomy => Aim::LeastCapacity,
        aim => aim,
    };
    let score = |tried: &TriedSettings| tried.score(goal).unwrap_or(u64::MAX);
    let near = |least: u64| (least / NEAR).max(GRANULARITY);
    if aim == Aim::Reserved {
        keep_least(&mut good, returns, |_| 0);
    }
    keep_least(&mut good, score, |least| match goal {
        Aim::DriverTime => least / NEAR,
        _ => near(least),
    });
    let unnoticed = requests / REQUESTS_PER_RETRY;
    keep_least(&mut good, |tried| tried.on_device.retries, |_| unnoticed);
    keep_least(&mut good, |tried| tried.on_device.peak_reserved_bytes, near);
    keep_least(
        &mut good,
        |tried| tried.on_device.driver_time_ns,
        |least| (least / 4).max(UNNOTICED_NS),
    );
    let best = good.into_iter().min_by_key(|(index, tried)| {
        let is_present = Reverse(*index == PRESENT);
        let order = (is_present, familiarity(&tried.conf), score(tried));
        (order, tried.on_device.driver_time_ns)
    });
    best.map(|(index, _)| index)
}

/// Driver time under the default settings; under `present` if those were not tried.
pub(super) fn usual_ns(tried: &[TriedSettings], present: &TriedSettings) -> u64 {
    let defaults = tried.iter().find(|tried| tried.conf.is_empty());
    defaults.unwrap_or(present).on_device.driver_time_ns
}

/// How well people know settings; lower is better known: whether they are others than the defaults and
/// `expandable_segments:True`, and their number of keys.
pub(super) fn familiarity(conf: &str) -> (bool, usize) {
    let keys = written(conf).filter(|(key, _)| !key.is_empty()).count();
    (keys > 0 && conf != "expandable_segments:True", keys)
}

/// Whether the program is no worse off with `tried` than with `present`, under which it completes.
pub(super) fn is_no_worse(tried: &TriedSettings, present: &TriedSettings, usual_ns: u64) -> bool {
    let (then, now) = (&tried.on_device, &present.on_device);
    then.peak_reserved_bytes <= now.peak_reserved_bytes
        && then.retries <= now.retries
        && (then.had_room() || !needs_more(tried, present))
        && is_bearable(then.driver_time_ns, now.driver_time_ns, usual_ns)
}

/// Whether a larger device is needed with `tried` than with `present`, as far as is known.
fn needs_more(tried: &TriedSettings, present: &TriedSettings) -> bool {
    let needs = |tried: &TriedSettings| tried.score(Aim::LeastCapacity);
    match (needs(tried), needs(present)) {
        (Some(then), Some(now)) => then > now,
        (None, known) => known.is_some(),
        (Some(_), None) => false,
    }
}

/// Whether so much driver time is no reason against settings.
fn is_bearable(then_ns: u64, now_ns: u64, usual_ns: u64) -> bool {
    let bound = usual_ns
        .saturating_mul(BEARABLE_TIMES)
        .max(usual_ns.saturating_add(BEARABLE_NS));
    then_ns <= now_ns.max(bound)
}

/// Keeps the settings whose figure exceeds the least by no more than `slack` says.
fn keep_least(
    good: &mut Vec<(usize, &TriedSettings)>,
    figure: impl Fn(&TriedSettings) -> u64,
    slack: impl Fn(u64) -> u64,
) {
    if let Some(least) = good.iter().map(|(_, tried)| figure(tried)).min() {
        let most = least.saturating_add(slack(least));
        good.retain(|(_, tried)| figure(tried) <= most);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::advise::search::MinimumMemory;
    use crate::advise::simulator::RunFigures;

    const GIB: u64 = 1 << 30;
    const REQUESTS: u64 = 10_000;

    /// Settings with which a program holds so many GiB, at so many retries and ms of driver time. Those that return memory
    /// need less than they hold.
    fn tried(conf: &str, gib: f64, returns: bool, retries: u64, ms: u64) -> TriedSettings {
        let held = (gib * GIB as f64) as u64;
        let needs = if returns { held * 9 / 10 } else { held };
        TriedSettings {
            minimum: MinimumMemory::Exactly(needs),
            on_device: RunFigures {
                peak_reserved_bytes: held,
                retries,
                device_frees: u64::from(returns),
                driver_time_ns: ms * 1_000_000,
                ..RunFigures::default()
            },
            ..TriedSettings::new(None, conf, 0)
        }
    }

    fn advised(all: &[TriedSettings]) -> &str {
        &all[preferred(all, REQUESTS, Aim::Reserved).unwrap()].conf
    }

    #[test]
    fn what_needs_less_but_holds_more_is_not_advised() {
        let all = [
            tried("", 34.5, false, 0, 300),
            tried("max_split_size_mb:32", 41.0, false, 0, 330),
            tried("expandable_segments:True", 5.7, false, 0, 105),
        ];
        assert_eq!(advised(&all), "expandable_segments:True");
        assert_eq!(advised(&all[..2]), "");
    }

    #[test]
    fn a_near_tie_is_decided_by_what_people_know() {
        let all = [
            tried("", 10.0, false, 0, 30),
            tried("max_split_size_mb:31", 8.0, false, 0, 35),
            tried("expandable_segments:True", 8.1, false, 0, 60),
        ];
        assert_eq!(advised(&all), "expandable_segments:True");
        let nearly = [tried("", 8.1, false, 0, 30), all[1].clone()];
        assert_eq!(advised(&nearly), "");
    }

    #[test]
    fn unbearable_driver_time_is_only_advised_to_a_program_that_dies() {
        let slow = tried("x", 4.0, false, 0, 10_000);
        let mut present = tried("", 8.0, false, 0, 100);
        assert_eq!(advised(&[present.clone(), slow.clone()]), "");
        present.on_device.ooms = 1;
        assert_eq!(advised(&[present, slow]), "x");
    }

    fn any_settings() -> impl Strategy<Value = Vec<TriedSettings>> {
        // Few different figures, so that ties are common.
        let figures = (
            16_u32..24,
            any::<bool>(),
            0..3_u64,
            0..12_u64,
            prop::bool::weighted(0.2),
        );
        prop::collection::vec(figures, 1..12).prop_map(|all| {
            let confs = ["", "expandable_segments:True", "a:1", "a:1,b:2"];
            let numbered = (0..).zip(all);
            numbered
                .map(|(number, (quarters, returns, retries, hundreds, fails))| {
                    let conf = confs
                        .get(number)
                        .map_or_else(|| format!("c:{number}"), |it| (*it).to_owned());
                    let retries = if returns { retries * 20 } else { 0 };
                    let mut tried = tried(
                        &conf,
                        f64::from(quarters) / 4.0,
                        returns,
                        retries,
                        100 * hundreds,
                    );
                    tried.on_device.ooms = u64::from(fails);
                    tried
                })
                .collect()
        })
    }

    proptest! {
        /// Nothing that the program has under its current settings gets worse.
        #[test]
        fn following_the_advice_is_never_worse(all in any_settings()) {
            let Some(best) = preferred(&all, REQUESTS, Aim::Reserved) else {
                prop_assert!(all.iter().all(|tried| !tried.fits()));
                return Ok(());
            };
            prop_assert!(all[best].fits());
            let (then, now) = (&all[best].on_device, &all[PRESENT].on_device);
            if all[PRESENT].fits() {
                prop_assert!(then.peak_reserved_bytes <= now.peak_reserved_bytes);
                prop_assert!(then.retries <= now.retries);
                let usual = all.iter().find(|tried| tried.conf.is_empty()).unwrap();
                prop_assert!(is_bearable(then.driver_time_ns, now.driver_time_ns, usual.on_device.driver_time_ns));
            }
        }

        /// The advice to a program that follows the advice is to change nothing that matters.
        #[test]
        fn the_advice_ends(mut all in any_settings()) {
            let Some(best) = preferred(&all, REQUESTS, Aim::Reserved) else { return Ok(()) };
            all.swap(PRESENT, best);
            let next = preferred(&all, REQUESTS, Aim::Reserved).unwrap();
            let (then, now) = (&all[next].on_device, &all[PRESENT].on_device);
            let saved = now.peak_reserved_bytes.saturating_sub(then.peak_reserved_bytes);
            prop_assert!(saved <= now.peak_reserved_bytes / NEAR, "{:?} after {:?}", all[next], all[PRESENT]);
        }
    }
}
