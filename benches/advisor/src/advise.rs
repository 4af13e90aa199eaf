//! Finds the settings, `PYTORCH_CUDA_ALLOC_CONF`, that suit a workload, by replaying it under many.
//!
//! [`advise`] takes an [`AdviceRequest`]: a workload, a device and the current settings. It returns
//! [`Advice`]: what the workload needs, which settings are best for each [`Aim`], what they cost, what other
//! allocators would achieve, and whether all this holds for the next run. [`report`] shows it.
//!
//! | file | purpose |
//! |---|---|
//! | `request.rs`, `advice.rs` | the input and the result |
//! | `simulator.rs` | replays the workload under given settings |
//! | `search.rs` | decides which settings are tried |
//! | `search/` | the settings worth trying for a workload |
//! | `peak.rs` | what memory is used for at the peak |
//! | `check.rs` | whether the replay reproduces the recording |
//! | `others.rs` | how other policies compare |
//! | `stability.rs` | how much the next run may differ |
//! | `worth.rs` | whether a gain is worth a change |
//! | `failure.rs` | the request that fails |
//! | `confidence.rs` | how far the answer can be trusted |
//! | `answer.rs` | the answer |
//! | `job.rs` | one setting for all ranks of a job |
//! | `report/` | the result as text and as an HTML page |

mod advice;
mod answer;
mod check;
mod confidence;
mod failure;
mod job;
mod others;
mod peak;
pub mod report;
mod request;
mod search;
mod simulator;
mod stability;
#[cfg(test)]
mod tests;
mod worth;

use std::collections::BTreeSet;

use anyhow::Context;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::parallel;
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::formats::snapshot::settings::KnownSettings;
use coalesce_workloads::op::Workload;

pub use self::advice::{Advice, RankedSettings};
pub use self::answer::{Answer, AnswerKind, FailureCause};
pub use self::check::RecordingCheck;
pub use self::confidence::{Confidence, ConfidenceLevel};
pub use self::failure::Failure;
pub use self::job::{JobAdvice, RankNeeds, one_for_all};
pub use self::others::OtherPolicy;
pub use self::peak::PeakBreakdown;
pub(crate) use self::peak::PeakFinder;
pub use self::request::{AdviceRequest, Aim};
pub use self::search::SearchExtent;
pub use self::simulator::RunFigures;
pub use self::stability::{Gain, Spread, Spreads, Stability};

use self::answer::Facts;
use self::failure::FailureFinder;
use self::search::candidates::CandidateGenerator;
use self::search::settings::CandidateSettings;
use self::search::sizes::RequestSizes;
use self::search::{MinimumMemory, PRESENT, Search, TriedSettings};
use self::simulator::Simulator;
use crate::diagnose::{Evidence, Finding, Subject, diagnose};
use crate::holders::{Holders, Holdings};
use crate::settings_string::{known_part, unknown_keys};

/// Percentages of the time limit at which each part ends: verification and findings; the first settings and the trial of
/// others; minimum capacities; larger capacities; perturbed copies of the workload; other policies.
const EXPLAINED: u32 = 40;
const SEARCHED: u32 = 50;
const COMPLETED: u32 = 65;
const LOOKED_ABOVE: u32 = 70;
const COPIED: u32 = 88;
const COMPARED: u32 = 98;

/// Searches for the settings that suit a workload.
///
/// The time limit ends replays that are under way. The most important parts come first, and the advice names
/// those that are missing.
///
/// # Errors
/// If the current settings are invalid, the workload cannot be read, or the time limit does not suffice for a
/// replay under the current settings.
pub fn advise(request: &AdviceRequest<'_>) -> anyhow::Result<Advice> {
    let deadline = Deadline::after(request.time_limit);
    let progress = Progress::new("replays", None);
    let settings = KnownSettings::of(request.present);
    settings.context("under the current settings (set with --conf)")?;
    let simulator = Simulator {
        progress: Some(&progress),
        deadline: deadline.at_percent(COMPARED),
        ..Simulator::of(request)?
    };
    let sizes = RequestSizes::of(request.workload)?;
    let free_permille = simulator.available() / (simulator.capacity / 1000).max(1);
    let generator = CandidateGenerator::new(
        request.present,
        // A limit need not be set.
        request.limit.is_none().then_some(free_permille),
        request.releases,
    );
    // No settings make room for more than there is.
    let can_fit = simulator.demand.lower_bound_bytes <= request.most_available();
    let mut failure = FailureFinder::default();
    let mut peak = (PeakFinder::default(), &mut failure);
    let figures = simulator.observe(request.present, &mut peak);
    let peak = peak.0.peak;
    let failure = failure.found();
    let begin = || {
        let mut search = Search::begin(
            simulator.until(deadline.at_percent(COMPLETED)),
            &sizes,
            generator,
            (request.present, figures),
            deadline.at_percent(SEARCHED),
        )?;
        if can_fit {
            search.try_singles();
        }
        anyhow::Ok(search)
    };
    let explain = || {
        let until = deadline.at_percent(EXPLAINED).moment();
        let check = request.recording;
        let check = check.map(|recording| RecordingCheck::of(recording, until));
        (
            check,
            examine(
                request,
                simulator.until(deadline.at_percent(EXPLAINED)),
                failure.as_ref(),
            ),
        )
    };
    let ((check, examined), search) = parallel::join(explain, begin);
    let mut search = search.with_context(|| match simulator.deadline.has_passed() {
        true => {
            "the time limit is too short for a replay under the current settings (--time-limit)"
        }
        false => "under the current settings (set with --conf)",
    })?;
    let mut left_out = LeftOut::default();
    let (findings, holdings, are_all) = examined.unwrap_or_else(|error| {
        left_out.findings(&error, deadline);
        (Vec::new(), Holdings::default(), true)
    });
    if !are_all {
        left_out.skipped.push("some of the findings".to_owned());
    }
    search.try_findings(&findings);
    if can_fit {
        search.refine(request.aim);
    }
    let shown = shown(&mut search, request.aim, deadline.at_percent(COMPLETED));
    let (mut stability, mut others) = (None, Vec::new());
    let mut best = search.best(request.aim);
    if can_fit {
        search.look_above(deadline.at_percent(LOOKED_ABOVE));
        best = search.best(request.aim);
        let rival = best
            .filter(|&best| best != PRESENT)
            .or_else(|| search.next_best(request.aim, PRESENT));
        let copied = deadline.at_percent(COPIED);
        stability = stability_against(&search, rival, request.copies, copied);
        others = others::compare(simulator, deadline.at_percent(COMPARED));
        left_out.after_search(stability.as_ref(), &others, deadline);
    }
    let coverage = request.recording.map(Recording::coverage);
    let answer = Facts {
        request,
        search: &search,
        best,
        stability: stability.as_ref(),
        failure,
        holdings: &holdings,
        confidence: Confidence::of(check.as_ref(), coverage.as_ref()),
    }
    .answer();
    let advised = match answer.kind {
        AnswerKind::Change => best,
        _ => None,
    };
    Ok(Advice {
        format: 2,
        workload: request.workload.name().to_owned(),
        events: simulator.demand.events,
        allocations: simulator.demand.allocations,
        lower_bound_bytes: simulator.demand.lower_bound_bytes,
        capacity_bytes: simulator.capacity,
        others_bytes: simulator.others,
        aim: request.aim,
        profile: request.profile.name.clone(),
        addresses: request.addresses.name(),
        answer,
        check,
        findings,
        holdings,
        peak,
        ranking: rank(&search, &shown, request.aim, advised),
        others,
        stability,
        conditions: request.conditions.to_vec(),
        coverage,
        remarks: [request.remarks, &remarks(request, &search, &left_out)].concat(),
        search: SearchExtent {
            seconds: (deadline.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            ..search.extent
        },
        skipped: left_out.skipped,
    })
}

/// What the search found out about itself, one sentence each.
fn remarks(request: &AdviceRequest<'_>, search: &Search<'_>, left_out: &LeftOut) -> Vec<String> {
    let mut remarks = Vec::new();
    let unknown = unknown_keys(request.present);
    if !unknown.is_empty() {
        remarks.push(format!(
            "PyTorch 2.11, the release that is simulated, does not know {} in the current settings. The replays \
             ignore it, and the advised settings keep it.",
            unknown.join(", ")
        ));
    }
    let unoffered = search.unoffered();
    if !unoffered.is_empty() && request.releases != Releases::REFERENCE {
        remarks.push(format!(
            "The program runs under {}: {} cannot be set there and was not tried.",
            request.releases.range(),
            listed(&unoffered)
        ));
    }
    let present = search.tried.get(PRESENT);
    if let Some(error) = present.and_then(|present| present.error.as_ref()) {
        remarks.push(format!(
            "The replay under the current settings failed: {error}."
        ));
    }
    remarks.extend(left_out.error.clone());
    if !left_out.skipped.is_empty() {
        remarks.push(format!(
            "Time ran out for {}; --time-limit sets the limit.",
            listed(&left_out.skipped)
        ));
    }
    remarks
}

/// The items as part of a sentence: `a, b and c`.
fn listed(items: &[String]) -> String {
    match items {
        [all @ .., before, last] => {
            let all = all.iter().map(|item| format!("{item}, "));
            format!("{}{before} and {last}", all.collect::<String>())
        }
        items => items.concat(),
    }
}

/// What the advice lacks.
#[derive(Default)]
struct LeftOut {
    /// What the time limit left out.
    skipped: Vec<String>,
    /// Why there are no findings.
    error: Option<String>,
}

impl LeftOut {
    fn findings(&mut self, error: &anyhow::Error, deadline: Deadline) {
        if deadline.at_percent(EXPLAINED).has_passed() {
            self.skipped.push("the findings".to_owned());
        } else {
            self.error = Some(format!("There are no findings: {error:#}."));
        }
    }

    fn after_search(
        &mut self,
        stability: Option<&Stability>,
        others: &[OtherPolicy],
        deadline: Deadline,
    ) {
        if stability.is_none() && deadline.at_percent(COPIED).has_passed() {
            self.skipped.push("perturbed runs".to_owned());
        }
        let missing: Vec<&str> = others::missing(others).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            self.skipped.push(format!("other allocators ({missing})"));
        }
    }
}

/// The findings, who holds memory when a request fails, or else at the peak of requested memory, and whether there
/// was time for all findings.
fn examine(
    request: &AdviceRequest<'_>,
    simulator: Simulator<'_>,
    failure: Option<&Failure>,
) -> anyhow::Result<(Vec<Finding>, Holdings, bool)> {
    let (workload, conf) = (
        simulator.timed(request.reactive),
        known_part(request.present),
    );
    let evidence = Evidence::gather(Subject {
        workload: &workload,
        recording: request.recording,
        conf: &conf,
        capacity: request.capacity.saturating_sub(request.others),
        limit: request.limit,
        address_policy: request.addresses,
    })?;
    let log = &evidence.log;
    let peak = || log.peak(&(0..log.end()), |level| level.requested);
    let event = failure.map(|failure| failure.event);
    let event = event.or_else(|| peak().map(|(event, _)| event));
    let holdings = Holders::of(&evidence).at(event.unwrap_or(0));
    let findings = diagnose(&evidence);
    // Rules whose replays were cut short find nothing.
    let are_all = !simulator.deadline.has_passed();
    Ok((findings, holdings, are_all))
}

/// The indices of the settings to show, after their minimum memory has been found: the current settings,
/// the defaults, the best for each aim, the best of each kind alone, and those that findings evaluated.
fn shown(search: &mut Search<'_>, aim: Aim, deadline: Deadline) -> BTreeSet<usize> {
    let kinds: [fn(&CandidateSettings) -> bool; 6] = [
        |settings| settings.keys() == 0,
        |settings| settings.expandable && settings.keys() == 1,
        |settings| settings.max_split_mib.is_some() && settings.keys() == 1,
        |settings| settings.roundup.is_some() && settings.keys() == 1,
        |settings| settings.collector.is_some() && settings.keys() <= 2,
        |settings| settings.large_segment_mib.is_some() && settings.keys() == 1,
    ];
    let mut shown = BTreeSet::from([PRESENT]);
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    for kind in kinds {
        let best = search.best_where(aim, kind);
        // If none of the kind suits the aim, the one that reserves least is shown.
        let best = best.or_else(|| search.best_where(Aim::Reserved, kind));
        shown.extend(best);
    }
    let tried = search.tried.iter().enumerate();
    let suggested = tried.filter(|(_, tried)| !tried.suggested_by.is_empty());
    shown.extend(suggested.map(|(index, _)| index));
    search.complete(&shown, deadline);
    // The minimum memory just found may change which settings are best.
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    shown
}

fn rank(
    search: &Search<'_>,
    shown: &BTreeSet<usize>,
    aim: Aim,
    advised: Option<usize>,
) -> Vec<RankedSettings> {
    let best_for = |index: usize| {
        let aims = Aim::ALL.into_iter();
        aims.filter(|&aim| search.best(aim) == Some(index))
            .collect()
    };
    let all = shown
        .iter()
        .filter_map(|&index| Some((index, search.tried.get(index)?)));
    let all = all.filter(|(index, tried)| *index == PRESENT || tried.error.is_none());
    let all: Vec<(usize, &TriedSettings)> = all.collect();
    let mut rows: Vec<(Option<u64>, RankedSettings)> = Vec::new();
    for &(index, tried) in &all {
        let row = RankedSettings {
            conf: tried.conf.clone(),
            is_present: index == PRESENT,
            is_advised: Some(index) == advised,
            best_for: best_for(index),
            on_front: !all.iter().any(|(_, other)| dominates(other, tried)),
            least_capacity_bytes: tried.minimum.known(),
            least_capacity_at_least_bytes: match tried.minimum {
                MinimumMemory::Exactly(bytes) | MinimumMemory::AtLeast(bytes) => bytes,
            },
            fails_above_bytes: tried.fails_above,
            peak_reserved_bytes: tried.with_room.peak_reserved_bytes,
            on_device: tried.on_device,
            suggested_by: tried.suggested_by.clone(),
            error: tried.error.clone(),
        };
        rows.push((tried.score(aim), row));
    }
    // Settings with an unknown score, or under which the program fails, come last.
    rows.sort_by_key(|(score, row)| {
        let last = score.is_none();
        (!row.is_present, last, *score, row.peak_reserved_bytes)
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Whether one setting is better than another for some aim and worse for none.
fn dominates(one: &TriedSettings, other: &TriedSettings) -> bool {
    let scores = |tried: &TriedSettings| Aim::ALL.map(|aim| tried.score(aim).unwrap_or(u64::MAX));
    let (one, other) = (scores(one), scores(other));
    one != other && one.iter().zip(&other).all(|(one, other)| one <= other)
}

/// Compares the current settings with a rival on perturbed copies of the workload, if the minimum memory of
/// both is known.
fn stability_against(
    search: &Search<'_>,
    rival: Option<usize>,
    copies: u64,
    deadline: Deadline,
) -> Option<Stability> {
    let known = |index: usize| {
        let tried = search.tried.get(index)?;
        Some((tried.conf.as_str(), tried.minimum.known()?))
    };
    match (known(PRESENT), rival.and_then(known)) {
        (Some(present), Some(rival)) => {
            stability::compare(search.simulator, present, rival, copies, deadline)
        }
        _ => None,
    }
}
