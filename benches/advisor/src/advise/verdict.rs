//! What is advised, in a sentence.

use serde::Serialize;

use super::ground::Ground;
use super::search::{Known, Search, tolerance};
use super::text::{amount, duration};
use super::{Aim, PRESENT, Question, Stability};

/// What is advised.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// What it comes to.
    pub kind: Kind,
    /// `PYTORCH_CUDA_ALLOC_CONF` to set; empty: none at all. None if nothing is to be set.
    pub conf: Option<String>,
    /// The same in a sentence or two.
    pub sentence: String,
    /// Bytes that are missing, if it does not fit.
    pub missing_bytes: u64,
    /// What else is worth knowing, one sentence each: what other aims gain, which version of PyTorch the
    /// setting needs.
    pub also: Vec<String>,
}

/// What advice comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Another setting is better.
    Change,
    /// The present setting is as good as any that was found.
    Keep,
    /// No setting that was found makes it fit, though what it asks for would.
    TooLarge,
    /// More is asked for at one time than there is: nothing helps but asking for less.
    Impossible,
}

impl Kind {
    /// As it is written in JSON.
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

/// What is advised. `best` is the index of the best setting for the aim, `stability` what became of it on
/// other copies of the program.
pub(super) fn of(
    ground: &Ground<'_>,
    question: &Question<'_>,
    search: &Search<'_>,
    best: Option<usize>,
    stability: Option<&Stability>,
) -> Verdict {
    let mut verdict = main_verdict(ground, question, search, best, stability);
    if matches!(verdict.kind, Kind::Change | Kind::Keep) {
        let set = verdict.conf.as_deref().unwrap_or(question.present);
        verdict.also = other_aims(question.aim, search, set);
    }
    if let Some(conf) = &verdict.conf {
        verdict.also.extend(versions(conf));
    }
    verdict
}

/// What could be had with other aims that is much better than under the setting `set`.
fn other_aims(aim: Aim, search: &Search<'_>, set: &str) -> Vec<String> {
    let Some(now) = search.tried.iter().find(|tried| tried.text == set) else {
        return Vec::new();
    };
    let others = Aim::ALL.into_iter().filter(|&other| other != aim);
    let better = others.filter_map(|other| {
        let best = search.tried.get(search.best(other)?)?;
        let (now, then) = (now.score(other)?, best.score(other)?);
        // Less than a tenth is not worth another choice.
        if then.saturating_mul(10) > now.saturating_mul(9) {
            return None;
        }
        let (what, now, then) = match other {
            Aim::LeastCapacity => ("run in the least memory", amount(now), amount(then)),
            Aim::DriverTime => ("wait least for the driver", duration(now), duration(then)),
            Aim::Reserved => ("hold the least on this device", amount(now), amount(then)),
        };
        let conf = quoted(&best.text);
        Some(format!("To {what}: {conf}, {then} instead of {now}."))
    });
    better.collect()
}

/// Keys that not every PyTorch knows, with the first that does.
const SINCE: [(&str, &str); 2] = [
    ("large_segment_size_mb", "2.11"),
    ("per_process_memory_fraction", "2.10"),
];

fn versions(conf: &str) -> Vec<String> {
    let new = SINCE.iter().filter(|(key, _)| conf.contains(key));
    let said = new.map(|(key, version)| format!("{key} needs PyTorch {version} or later."));
    said.collect()
}

fn main_verdict(
    ground: &Ground<'_>,
    question: &Question<'_>,
    search: &Search<'_>,
    best: Option<usize>,
    stability: Option<&Stability>,
) -> Verdict {
    let available = ground.available();
    let lower_bound = ground.demand.lower_bound_bytes;
    if lower_bound > available {
        let missing = lower_bound - available;
        return Verdict {
            kind: Kind::Impossible,
            conf: None,
            sentence: format!(
                "No setting can help: the program asks for {} at one time, and there are {}. You need \
                 {} more, or a program that asks for less.",
                amount(lower_bound),
                amount(available),
                amount(missing)
            ),
            missing_bytes: missing,
            also: Vec::new(),
        };
    }
    let (Some(present), Some(most_frugal)) =
        (search.tried.get(PRESENT), search.best(Aim::LeastCapacity))
    else {
        return keep(String::new());
    };
    let most_frugal = search.tried.get(most_frugal);
    let least = most_frugal.map_or(Known::NotBelow(0), |tried| tried.least);
    let frugal = match least {
        Known::Exactly(bytes) => bytes,
        Known::NotBelow(_) => u64::MAX,
    };
    if frugal > available {
        let missing = frugal - available;
        let conf = most_frugal.map(|tried| tried.text.clone());
        return Verdict {
            kind: Kind::TooLarge,
            sentence: format!(
                "No setting that was tried makes it fit: {} needs least, {}, and there are {}. You need \
                 {} more; what is asked for at one time is {}.",
                quoted(conf.as_deref().unwrap_or("")),
                amount(frugal),
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
    let (before, after) = (present.score(question.aim), advised.score(question.aim));
    let is_worth_it = match (before, after) {
        (None, Some(_)) => true,
        (Some(before), Some(after)) => {
            let worth = match question.aim {
                Aim::DriverTime => before / 20,
                _ => tolerance(lower_bound),
            };
            before.saturating_sub(after) > worth
        }
        _ => false,
    };
    // Whoever wants it to fit is helped by what fits, whatever else.
    let fits_now = advised.on_device.fits() && !present.on_device.fits();
    if advised.text == present.text || !(is_worth_it || fits_now) {
        return keep(present_figures(question.aim, before, lower_bound));
    }
    if let Some(stability) = stability.filter(|known| !fits_now && !known.confirms(question.aim)) {
        return keep(format!(
            "{} {} is better for this run, but not for sure for the next: it needs less than they do in \
             {} of {} others.",
            present_figures(question.aim, before, lower_bound),
            capitalised(&quoted(&advised.text)),
            stability.needs_less,
            stability.copies
        ));
    }
    let gain = match question.aim {
        Aim::LeastCapacity => least_gain(before, after, lower_bound),
        Aim::DriverTime => time_gain(before, after, &question.profile.name),
        Aim::Reserved => reserved_gain(before, after),
    };
    let mut sentence = gain;
    if fits_now {
        sentence.push_str(" It fits then, which it does not now.");
    }
    let (now, then) = (&present.on_device, &advised.on_device);
    if question.aim != Aim::DriverTime
        && then.driver_time_ns > now.driver_time_ns * 5 / 4
        && now.fits()
    {
        let times = then.driver_time_ns as f64 / now.driver_time_ns.max(1) as f64;
        sentence.push_str(&format!(
            " The driver then takes {times:.1} times as long on this device: {} instead of {}.",
            duration(then.driver_time_ns),
            duration(now.driver_time_ns)
        ));
    }
    Verdict {
        kind: Kind::Change,
        conf: Some(advised.text.clone()),
        sentence,
        missing_bytes: 0,
        also: Vec::new(),
    }
}

fn keep(figures: String) -> Verdict {
    Verdict {
        kind: Kind::Keep,
        conf: None,
        sentence: format!("The present settings are as good as any that was tried.{figures}"),
        missing_bytes: 0,
        also: Vec::new(),
    }
}

fn present_figures(aim: Aim, score: Option<u64>, lower_bound: u64) -> String {
    let Some(score) = score else {
        return String::new();
    };
    let asked = amount(lower_bound);
    match aim {
        Aim::LeastCapacity => {
            let least = amount(score);
            format!(" The program runs in {least}, and asks for {asked} at one time.")
        }
        Aim::DriverTime => format!(" The driver takes {}.", duration(score)),
        Aim::Reserved => {
            let held = amount(score);
            format!(" The program holds {held}, and asks for {asked} at one time.")
        }
    }
}

fn least_gain(before: Option<u64>, after: Option<u64>, lower_bound: u64) -> String {
    let gain = gain(before, after);
    let asked = amount(lower_bound);
    format!("The program then runs in {gain}. It asks for {asked} at one time.")
}

fn time_gain(before: Option<u64>, after: Option<u64>, profile: &str) -> String {
    let after = duration(after.unwrap_or(0));
    match before {
        Some(before) => format!(
            "The driver then takes {after} instead of {}, by the costs of '{profile}'.",
            duration(before)
        ),
        None => format!("The driver then takes {after}, by the costs of '{profile}'."),
    }
}

fn reserved_gain(before: Option<u64>, after: Option<u64>) -> String {
    format!("The program then holds {}.", gain(before, after))
}

/// Bytes, and how much less they are than before.
fn gain(before: Option<u64>, after: Option<u64>) -> String {
    let after = after.unwrap_or(0);
    let then = amount(after);
    let instead = |before: u64| {
        let less = amount(before.saturating_sub(after));
        format!("{then} instead of {}: {less} less", amount(before))
    };
    before.map_or_else(|| then.clone(), instead)
}

/// A setting in a sentence.
pub(super) fn quoted(conf: &str) -> String {
    match conf {
        "" => "the default".to_owned(),
        conf => format!("'{conf}'"),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
