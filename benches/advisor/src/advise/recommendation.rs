//! What is recommended, in a sentence.

use coalesce_bench::text::{amount, duration, quoted};
use serde::Serialize;

use super::request::{AdviceRequest, Aim};
use super::search::{PRESENT, Search, TriedSettings};
use super::simulator::Simulator;
use super::stability::Stability;
use super::worth::Worth;

/// What is recommended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Recommendation {
    /// The kind of recommendation.
    pub kind: RecommendationKind,
    /// The settings string to set; empty for the defaults. None if nothing is to be changed.
    pub conf: Option<String>,
    /// The recommendation with its reasons.
    pub sentence: String,
    /// Bytes that are missing if the workload does not fit.
    pub missing_bytes: u64,
    /// Remarks, one sentence each: what other aims would gain, and the PyTorch version that a setting needs.
    pub also: Vec<String>,
}

/// The kind of a recommendation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecommendationKind {
    /// Other settings are better.
    Change,
    /// The current settings are as good as any that were tried.
    Keep,
    /// The workload fits under none of the settings tried, although its requested memory would.
    TooLarge,
    /// More memory is requested at one time than is available: only requesting less helps.
    Impossible,
}

impl RecommendationKind {
    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Keep => "keep",
            Self::TooLarge => "too_large",
            Self::Impossible => "impossible",
        }
    }
}

/// The recommendation. `best` is the index of the best settings for the aim, and `stability` their result on
/// perturbed copies of the workload.
pub(super) fn of(
    simulator: &Simulator<'_>,
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    best: Option<usize>,
    stability: Option<&Stability>,
) -> Recommendation {
    let mut recommendation = without_remarks(simulator, request, search, best, stability);
    if matches!(
        recommendation.kind,
        RecommendationKind::Change | RecommendationKind::Keep
    ) {
        let chosen = recommendation.conf.as_deref().unwrap_or(request.present);
        recommendation.also = other_aims(request.aim, search, chosen);
    }
    if let Some(conf) = &recommendation.conf {
        recommendation.also.extend(required_versions(conf));
    }
    recommendation
}

/// What other aims would gain over the chosen settings, if it is much.
fn other_aims(aim: Aim, search: &Search<'_>, chosen: &str) -> Vec<String> {
    let Some(chosen) = search.tried.iter().find(|tried| tried.conf == chosen) else {
        return Vec::new();
    };
    let others = Aim::ALL.into_iter().filter(|&other| other != aim);
    let better = others.filter_map(|other| {
        let best = search.tried.get(search.best(other)?)?;
        let (now, then) = (chosen.score(other)?, best.score(other)?);
        // A gain of less than a tenth is not worth another choice.
        if then.saturating_mul(10) > now.saturating_mul(9) {
            return None;
        }
        let (goal, now, then) = match other {
            Aim::LeastCapacity => ("lowest minimum device memory", amount(now), amount(then)),
            Aim::DriverTime => ("shortest driver time", duration(now), duration(then)),
            Aim::Reserved => (
                "lowest reserved memory on this device",
                amount(now),
                amount(then),
            ),
        };
        let conf = quoted(&best.conf);
        Some(format!(
            "For the {goal}, use {conf}: {then} instead of {now}."
        ))
    });
    better.collect()
}

/// Keys that older PyTorch versions do not know, with the first version that does.
const SINCE: [(&str, &str); 2] = [
    ("large_segment_size_mb", "2.11"),
    ("per_process_memory_fraction", "2.10"),
];

fn required_versions(conf: &str) -> impl Iterator<Item = String> {
    let new = SINCE.into_iter().filter(|(key, _)| conf.contains(key));
    new.map(|(key, version)| format!("{key} requires PyTorch {version} or later."))
}

fn without_remarks(
    simulator: &Simulator<'_>,
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    best: Option<usize>,
    stability: Option<&Stability>,
) -> Recommendation {
    let available = simulator.available();
    let lower_bound = simulator.demand.lower_bound_bytes;
    if lower_bound > available {
        let missing = lower_bound - available;
        return Recommendation {
            kind: RecommendationKind::Impossible,
            conf: None,
            sentence: format!(
                "No setting can help: the program requests {} at its peak, and {} is available. It needs {} \
                 more memory, or must request less.",
                amount(lower_bound),
                amount(available),
                amount(missing)
            ),
            missing_bytes: missing,
            also: Vec::new(),
        };
    }
    let (Some(present), Some(lowest)) =
        (search.tried.get(PRESENT), search.best(Aim::LeastCapacity))
    else {
        return keep(String::new());
    };
    let lowest = search.tried.get(lowest);
    let minimum = lowest.and_then(|tried| tried.minimum.known());
    let minimum = minimum.unwrap_or(u64::MAX);
    if minimum > available {
        let missing = minimum - available;
        let conf = lowest.map(|tried| tried.conf.clone());
        return Recommendation {
            kind: RecommendationKind::TooLarge,
            sentence: format!(
                "The program does not fit under any setting that was tried: {} needs the least memory, {}, and \
                 {} is available. {} is missing. The program requests {} at its peak.",
                quoted(conf.as_deref().unwrap_or("")),
                amount(minimum),
                amount(available),
                amount(missing),
                amount(lower_bound)
            ),
            conf,
            missing_bytes: missing,
            also: Vec::new(),
        };
    }
    let Some(advised) = best.and_then(|best| search.tried.get(best)) else {
        return keep(String::new());
    };
    let (before, after) = (present.score(request.aim), advised.score(request.aim));
    let fits_now = advised.fits() && !present.fits();
    match Worth::of(request.aim, present, advised, lower_bound, stability) {
        Worth::Change => {}
        Worth::AsGood => return keep(present_figures(request.aim, before, lower_bound)),
        Worth::Unreliable => {
            return keep(format!(
                "{} {} is better in this run, but not reliably so: it is better in {} of {} perturbed runs.",
                present_figures(request.aim, before, lower_bound),
                capitalised(&quoted(&advised.conf)),
                stability
                    .and_then(|known| known.better(request.aim))
                    .unwrap_or(0),
                stability.map_or(0, |known| known.copies)
            ));
        }
    }
    let mut sentence = gain(request, before, after.unwrap_or(0), lower_bound);
    if fits_now {
        sentence.push_str(" It then fits on this device, which it does not now.");
    }
    sentence.push_str(&slower_driver(request.aim, present, advised));
    Recommendation {
        kind: RecommendationKind::Change,
        conf: Some(advised.conf.clone()),
        sentence,
        missing_bytes: 0,
        also: Vec::new(),
    }
}

fn keep(figures: String) -> Recommendation {
    Recommendation {
        kind: RecommendationKind::Keep,
        conf: None,
        sentence: format!("The current settings are as good as any that were tried.{figures}"),
        missing_bytes: 0,
        also: Vec::new(),
    }
}

fn present_figures(aim: Aim, score: Option<u64>, lower_bound: u64) -> String {
    let Some(score) = score else {
        return String::new();
    };
    let requested = amount(lower_bound);
    match aim {
        Aim::LeastCapacity => {
            let minimum = amount(score);
            format!(
                " The program completes in {minimum} of device memory and requests {requested} at its peak."
            )
        }
        Aim::DriverTime => format!(" Driver calls take {}.", duration(score)),
        Aim::Reserved => {
            let reserved = amount(score);
            format!(" The program reserves {reserved} and requests {requested} at its peak.")
        }
    }
}

/// What the advised settings gain for the aim.
fn gain(request: &AdviceRequest<'_>, before: Option<u64>, after: u64, lower_bound: u64) -> String {
    let less = |before: u64| {
        let saved = amount(before.saturating_sub(after));
        format!(" instead of {}, {saved} less", amount(before))
    };
    let instead = match (request.aim, before) {
        (_, None) => String::new(),
        (Aim::DriverTime, Some(before)) => format!(" instead of {}", duration(before)),
        (_, Some(before)) => less(before),
    };
    match request.aim {
        Aim::LeastCapacity => format!(
            "With these settings the program completes in {} of device memory{instead}. It requests {} at its \
             peak.",
            amount(after),
            amount(lower_bound)
        ),
        Aim::DriverTime => format!(
            "With these settings driver calls take {}{instead}, by the cost profile '{}'.",
            duration(after),
            request.profile.name
        ),
        Aim::Reserved => format!(
            "With these settings the program reserves {}{instead}.",
            amount(after)
        ),
    }
}

/// A warning if driver calls take more than a quarter longer.
fn slower_driver(aim: Aim, present: &TriedSettings, advised: &TriedSettings) -> String {
    let (now, then) = (&present.on_device, &advised.on_device);
    let is_slower = then.driver_time_ns > now.driver_time_ns * 5 / 4;
    if aim == Aim::DriverTime || !is_slower || !now.fits() {
        return String::new();
    }
    let times = then.driver_time_ns as f64 / now.driver_time_ns.max(1) as f64;
    format!(
        " Driver calls then take {times:.1} times as long on this device: {} instead of {}.",
        duration(then.driver_time_ns),
        duration(now.driver_time_ns)
    )
}

/// The text with its first letter in upper case.
fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
