//! One setting for all ranks of a job.
//!
//! Each rank of a distributed program has its own recording, but all ranks usually run with the same settings.
//! The settings advised to one rank are replayed on all others. The best are those under which most ranks fit;
//! among these, those under which the rank that holds most memory holds least, or, if some rank does not fit now or
//! another aim is named, the rank that needs most needs least.

use std::cmp::Reverse;

use coalesce_alloc::printable::printable;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel::Jobs;
use coalesce_bench::text::{Unit, count, percent_of, quoted};
use coalesce_workloads::formats::snapshot::release::Releases;
use schemars::JsonSchema;
use serde::Serialize;

use super::advice::{Advice, RankedSettings};
use super::answer::command;
use super::confidence::ConfidenceLevel;
use super::preference::{NEAR, familiarity};
use super::request::{AdviceRequest, Aim};
use super::search::tolerance;
use super::simulator::{PYTORCH, Simulator};

/// The advice for a job.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct JobAdvice {
    /// The version of this format: 2.
    pub format: u32,
    /// The settings string for all ranks; empty for the defaults. None if the current settings are as good.
    pub conf: Option<String>,
    /// The shell command that sets it.
    pub command: Option<String>,
    /// The index in `ranks` of the rank that needs most memory under the current settings.
    pub worst: usize,
    /// What all ranks need, in the order of `ranks`.
    pub needs: Vec<RankNeeds>,
    /// The answer in sentences, the most important first.
    pub sentences: Vec<String>,
    /// The advice for each rank alone.
    pub ranks: Vec<Advice>,
}

/// The minimum memory of a rank, in bytes; none if it is unknown.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct RankNeeds {
    /// The workload's name.
    pub rank: String,
    /// Bytes that the rank may reserve.
    pub available_bytes: u64,
    /// Under its current settings.
    pub current_bytes: Option<u64>,
    /// Under the settings for all ranks.
    pub then_bytes: Option<u64>,
    /// What it holds at its peak on the device under its current settings; none if it does not complete.
    pub holds_bytes: Option<u64>,
    /// The same under the settings for all ranks.
    pub holds_then_bytes: Option<u64>,
}

impl RankNeeds {
    /// Whether the rank fits if it needs this much.
    fn fits(&self, needs: Option<u64>) -> bool {
        needs.is_some_and(|bytes| bytes <= self.available_bytes)
    }
}

/// What a rank needs and holds, as far as it is known.
#[derive(Clone, Copy, Default)]
struct Figures {
    needs: Option<u64>,
    holds: Option<u64>,
}

/// Settings with the figures of each rank.
struct Candidate {
    conf: String,
    ranks: Vec<Figures>,
}

/// Finds the settings for all ranks of a job by the deadline, given the advice for each. There must be at least
/// one rank. `unread` says of each rank that is left out why, in a sentence.
#[must_use]
pub fn one_for_all(
    requests: &[AdviceRequest<'_>],
    ranks: Vec<Advice>,
    unread: &[String],
    deadline: Deadline,
) -> JobAdvice {
    let current = Candidate {
        conf: String::new(),
        ranks: ranks
            .iter()
            .map(|advice| advice.ranking.first().map_or_else(Figures::default, known))
            .collect(),
    };
    let confs = proposed(&ranks);
    let jobs = requests
        .first()
        .map_or_else(Jobs::default, |request| request.jobs);
    let candidates = jobs.map(&confs, |conf| {
        let figures = requests
            .iter()
            .zip(&ranks)
            .map(|(request, advice)| figures_under(conf, request, advice, deadline));
        Candidate {
            conf: conf.clone(),
            ranks: figures.collect(),
        }
    });
    let fitting = |one: &Candidate| {
        let pairs = one.ranks.iter().zip(&ranks);
        let fits = pairs.filter(|(figures, advice)| {
            figures
                .needs
                .is_some_and(|bytes| bytes <= advice.answer.available_bytes)
        });
        fits.count()
    };
    let by_holds = requests.iter().all(|request| request.aim == Aim::Reserved)
        && current.ranks.iter().all(|rank| rank.holds.is_some());
    let counted = |rank: &Figures| if by_holds { rank.holds } else { rank.needs };
    let score = |one: &Candidate| most(one.ranks.iter().map(counted));
    let holds_more = |one: &Candidate| {
        let mut pairs = one.ranks.iter().zip(&current.ranks);
        pairs.any(|(then, now)| {
            then.holds
                .zip(now.holds)
                .is_some_and(|(then, now)| then > now)
        })
    };
    let order = |one: &Candidate| (Reverse(fitting(one)), score(one));
    let considered = || candidates.iter().filter(|one| !holds_more(one));
    let best = considered().map(order).min().and_then(|(fit, least)| {
        let near = least.saturating_add(least / NEAR);
        let good = considered().filter(|one| order(one).0 == fit && order(one).1 <= near);
        good.min_by_key(|one| (familiarity(&one.conf), order(one)))
    });
    let bound = ranks.iter().map(|advice| advice.lower_bound_bytes).max();
    let tolerance = tolerance(bound.unwrap_or(0));
    let best = best.filter(|best| {
        let saved = score(&current).saturating_sub(score(best));
        fitting(best) > fitting(&current) || saved > tolerance.max(score(&current) / NEAR)
    });
    let then = best.unwrap_or(&current);
    let needs: Vec<RankNeeds> = ranks
        .iter()
        .zip(current.ranks.iter().zip(&then.ranks))
        .map(|(advice, (now, then))| RankNeeds {
            rank: advice.workload.clone(),
            available_bytes: advice.answer.available_bytes,
            current_bytes: now.needs,
            then_bytes: then.needs,
            holds_bytes: now.holds,
            holds_then_bytes: then.holds,
        })
        .collect();
    let worst = (0..needs.len())
        .max_by_key(|&index| needs.get(index)?.current_bytes)
        .unwrap_or(0);
    let conf = best.map(|best| best.conf.clone());
    let first = requests.first();
    let first = first.map_or(("", Releases::REFERENCE), |one| (one.present, one.releases));
    let command = conf.as_deref().map(|conf| command(conf, first.0, first.1));
    let is_unknown = |one: &&Candidate| one.ranks.iter().any(|rank| rank.needs.is_none());
    let unknown = candidates.iter().filter(is_unknown);
    let unfinished = if deadline.has_passed() {
        unknown.count()
    } else {
        0
    };
    JobAdvice {
        format: 2,
        sentences: [
            unread.to_vec(),
            caveats(&ranks, unfinished),
            sentences(&needs, worst, conf.as_deref()),
        ]
        .concat(),
        conf,
        command,
        worst,
        needs,
        ranks,
    }
}

/// The settings that are advised to a rank, or best for it.
fn proposed(ranks: &[Advice]) -> Vec<String> {
    let rows = ranks.iter().flat_map(|advice| &advice.ranking);
    let good = rows.filter(|row| row.is_advised || row.best_for.contains(&Aim::LeastCapacity));
    let mut confs: Vec<String> = good.map(|row| row.conf.clone()).collect();
    confs.sort();
    confs.dedup();
    confs
}

/// The figures of settings that were tried for a rank.
fn known(row: &RankedSettings) -> Figures {
    let completes = row.error.is_none() && row.on_device.fits();
    Figures {
        needs: row.least_capacity_bytes,
        holds: completes.then_some(row.on_device.peak_reserved_bytes),
    }
}

/// The figures of a rank; unknown if a replay fails or the deadline passes.
fn figures_under(
    conf: &str,
    request: &AdviceRequest<'_>,
    advice: &Advice,
    deadline: Deadline,
) -> Figures {
    let row = advice.ranking.iter().find(|row| row.conf == conf);
    let known = row.map_or_else(Figures::default, known);
    if known.needs.is_some() || deadline.has_passed() {
        return known;
    }
    let Ok(simulator) = Simulator::of(request) else {
        return known;
    };
    let simulator = simulator.until(deadline);
    let Ok((on_device, with_room)) = simulator.both(PYTORCH, conf) else {
        return known;
    };
    let minimum = simulator.minimum(PYTORCH, conf, with_room.peak_reserved_bytes);
    Figures {
        needs: minimum.ok(),
        holds: on_device.fits().then_some(on_device.peak_reserved_bytes),
    }
}

/// The most that a rank needs or holds.
fn most(ranks: impl Iterator<Item = Option<u64>>) -> u64 {
    let known = ranks.map(|bytes| bytes.unwrap_or(u64::MAX));
    known.max().unwrap_or(u64::MAX)
}

/// What must be known before the answer is read. `unfinished` settings were not tried on all ranks.
fn caveats(ranks: &[Advice], unfinished: usize) -> Vec<String> {
    let all = ranks.len();
    let at_level = |level: ConfidenceLevel| {
        let levels = ranks.iter().map(|rank| rank.answer.confidence.level);
        levels.filter(|&one| one == level).count()
    };
    let mut caveats = Vec::new();
    match at_level(ConfidenceLevel::Estimate) {
        0 => {}
        some => caveats.push(format!(
            "The figures of {some} of {all} ranks are estimates; the advice for each alone says why."
        )),
    }
    match at_level(ConfidenceLevel::RecordedPart) {
        0 => {}
        some => caveats.push(format!(
            "The beginning of {some} of {all} ranks is not recorded: their figures are of the recorded part."
        )),
    }
    if unfinished > 0 {
        caveats.push(format!(
            "Time ran out before {} could be tried on all ranks; --time-limit sets the limit.",
            count(unfinished as u64, "setting")
        ));
    }
    caveats
}

/// The verb that agrees with a number of ranks.
fn agreeing(ranks: usize) -> &'static str {
    match ranks {
        1 => "does",
        _ => "do",
    }
}

fn sentences(needs: &[RankNeeds], worst: usize, conf: Option<&str>) -> Vec<String> {
    let Some(worst) = needs.get(worst) else {
        return Vec::new();
    };
    let unit = Unit::of(worst.current_bytes.unwrap_or(0));
    let all = needs.len();
    let mut sentences = Vec::new();
    let failing = |bytes: fn(&RankNeeds) -> Option<u64>| {
        let failing = needs.iter().filter(|rank| !rank.fits(bytes(rank)));
        failing.count()
    };
    let failing_now = failing(|rank| rank.current_bytes);
    if failing_now > 0 {
        sentences.push(format!(
            "{failing_now} of {all} ranks {} not fit under their current settings.",
            agreeing(failing_now)
        ));
    }
    let then = needs.iter().filter_map(|rank| rank.then_bytes).max();
    let holds = |bytes: fn(&RankNeeds) -> Option<u64>| {
        needs
            .iter()
            .map(bytes)
            .try_fold(0, |most, bytes| Some(bytes?.max(most)))
    };
    let holds = holds(|rank| rank.holds_bytes).zip(holds(|rank| rank.holds_then_bytes));
    sentences.push(match (conf, worst.current_bytes, then) {
        (Some(conf), Some(now), Some(then)) => format!(
            "With {} on all ranks, {}the rank that needs most needs {} instead of {}{}.",
            quoted(conf),
            holds.map_or_else(String::new, |(now, then)| format!(
                "the rank that holds most holds {} instead of {}, and ",
                unit.amount(then),
                unit.amount(now)
            )),
            unit.amount(then),
            unit.amount(now),
            match failing(|rank| rank.then_bytes) {
                0 => String::new(),
                still => format!("; {still} of {all} ranks still {} not fit", agreeing(still)),
            }
        ),
        _ if failing_now > 0 => {
            "None of the settings that were tried makes more ranks fit, or saves memory on the rank that needs most."
                .to_owned()
        }
        _ => "The current settings are fine: none that were tried are better for all ranks."
            .to_owned(),
    });
    let least = needs
        .iter()
        .filter_map(|rank| Some((rank.current_bytes?, rank)))
        .min_by_key(|(bytes, _)| *bytes);
    match (worst.current_bytes, least) {
        (Some(most), Some((least, _))) if most == least => sentences.push(format!(
            "Under the current settings all ranks need the same, {}.",
            unit.amount(most)
        )),
        (Some(most), Some((least, rank))) => sentences.push(format!(
            "Under the current settings {} needs most, {}, and {} needs least, {}: an imbalance of {}.",
            printable(&worst.rank),
            unit.amount(most),
            printable(&rank.rank),
            unit.amount(least),
            percent_of(most - least, most)
        )),
        _ => {}
    }
    sentences
}

#[cfg(test)]
mod tests;
