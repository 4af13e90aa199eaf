//! Finds the settings, `PYTORCH_CUDA_ALLOC_CONF`, that suit a workload, by replaying it under many.
//!
//! [`advise`] takes an [`AdviceRequest`]: a workload, a device and the current settings. It returns
//! [`Advice`]: what the workload needs, which settings are best for each [`Aim`], what they cost, what other
//! allocators would achieve, and whether all this holds for the next run. [`report`] shows it.
//!
//! | file | purpose |
//! |---|---|
//! | `request.rs`, `advice.rs` | the input and the result |
//! | `opened.rs` | a workload with its conditions, from which requests are made |
//! | `simulator.rs` | replays the workload under given settings |
//! | `search.rs` | decides which settings are tried |
//! | `search/` | the settings worth trying for a workload |
//! | `preference.rs` | which settings are advised |
//! | `ranking.rs` | the settings to show, in order |
//! | `peak.rs` | what memory is used for at the peak |
//! | `check.rs` | whether the replay reproduces the recording |
//! | `others.rs` | how other policies compare |
//! | `stability.rs` | how much the next run may differ |
//! | `worth.rs` | whether a gain is worth a change |
//! | `failure.rs` | the request that fails |
//! | `first.rs` | what is known before other settings are tried |
//! | `confidence.rs` | how far the answer can be trusted |
//! | `answer.rs` | the answer |
//! | `in_time.rs` | what the program could do at some of its lines |
//! | `in_time/` | what is worth trying, and its Python; other orders of creation |
//! | `job.rs` | one setting for all ranks of a job |
//! | `report/` | the result as text and as an HTML page |

mod advice;
mod answer;
mod check;
mod confidence;
mod failure;
mod first;
mod in_time;
mod job;
mod opened;
mod others;
mod peak;
mod preference;
#[cfg(test)]
mod properties;
mod ranking;
pub mod report;
mod request;
mod search;
mod simulator;
mod stability;
#[cfg(test)]
pub(crate) mod tests;
mod worth;

use anyhow::Context;
use coalesce_alloc::printable::printable;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::formats::snapshot::settings::KnownSettings;
use coalesce_workloads::op::Workload;

pub use self::advice::{Advice, RankedSettings};
pub use self::answer::{Answer, AnswerKind, FailureCause, command};
pub use self::check::RecordingCheck;
pub use self::confidence::{Confidence, ConfidenceLevel};
pub use self::failure::Failure;
pub use self::in_time::{InOrder, InTime};
pub use self::job::{JobAdvice, RankNeeds, one_for_all};
pub use self::opened::{Goal, Opened};
pub use self::others::OtherPolicy;
pub use self::peak::PeakBreakdown;
pub(crate) use self::peak::PeakFinder;
pub use self::request::{AdviceRequest, Aim};
pub use self::search::SearchExtent;
pub use self::simulator::RunFigures;
pub use self::stability::{Gain, Spread, Spreads, Stability};

use self::answer::Facts;
use self::failure::FailureFinder;
use self::in_time::Candidates;
use self::search::candidates::CandidateGenerator;
use self::search::sizes::RequestSizes;
use self::search::{PRESENT, Search};
use self::simulator::Simulator;
use self::stability::{Change, Known};
use crate::diagnose::{Evidence, Finding, Leak, diagnose, leak};
use crate::holders::{Holders, Holdings};
use crate::settings_string::{known_part, unknown_keys};

/// Percentages of the time limit at which each part ends: verification and findings; the trial of settings;
/// minimum capacities; larger capacities; perturbed copies of the workload; other policies; schedules; their copies.
const EXPLAINED: u32 = 35;
const SEARCHED: u32 = 45;
const COMPLETED: u32 = 57;
const LOOKED_ABOVE: u32 = 62;
const COPIED: u32 = 75;
const COMPARED: u32 = 83;
const SCHEDULED: u32 = 93;
const ENDED: u32 = 98;

/// A leak explains a peak of which it is at least this part: 10 %.
const LEAK_PART: u64 = 10;

/// The context of errors under the current settings.
const CURRENT: &str = "under the current settings (set with --conf)";

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
    let settings = KnownSettings::of(request.conditions.release, request.present);
    settings.context(CURRENT)?;
    let simulator = Simulator {
        progress: Some(&progress),
        deadline: deadline.at_percent(ENDED),
        ..Simulator::of(request)?
    };
    let sizes = RequestSizes::of(request.workload)?;
    // No settings make room for more than there is.
    let can_fit = simulator.demand.lower_bound_bytes <= request.most_available();
    let mut failure = FailureFinder::default();
    let mut observer = (PeakFinder::default(), &mut failure);
    let figures = simulator.observe(request.present, &mut observer);
    let (peak, failure) = (observer.0.peak, failure.found());
    if let (Some(tell), Ok(figures)) = (request.tell, &figures) {
        let first = first::answer(request, &simulator.demand, figures, failure.as_ref());
        first.iter().for_each(|first| tell(first));
    }
    let (explanation, search) = request.jobs.join(
        || Explanation::of(request, simulator, failure.as_ref(), deadline),
        || begin(request, simulator, &sizes, figures, can_fit, deadline),
    );
    let mut search = search.with_context(|| {
        if simulator.deadline.has_passed() {
            "the time limit is too short for a replay under the current settings (--time-limit)"
        } else {
            CURRENT
        }
    })?;
    let Explanation {
        check,
        mut findings,
        leak,
        holdings,
        candidates,
        mut skipped,
        error,
    } = explanation;
    search.try_findings(&findings);
    if can_fit {
        search.refine(request.aim);
    }
    let shown = ranking::shown(&mut search, request.aim, deadline.at_percent(COMPLETED));
    if can_fit {
        search.look_above(deadline.at_percent(LOOKED_ABOVE));
    }
    let best = preference::of(&search, request.aim);
    let (mut stability, mut others) = (None, Vec::new());
    if can_fit {
        let rival = best
            .filter(|&best| best != PRESENT)
            .or_else(|| search.next_best(request.aim, PRESENT))
            .or_else(|| search.next_best(Aim::LeastCapacity, PRESENT));
        let copied = deadline.at_percent(COPIED);
        stability = stability_against(&search, rival, request.copies, copied);
        others = others::compare(simulator, deadline.at_percent(COMPARED));
        if stability.is_none() && copied.has_passed() {
            skipped.push("perturbed runs".to_owned());
        }
        let missing: Vec<&str> = others::missing(&others).collect();
        if !missing.is_empty() {
            skipped.push(format!("other allocators ({})", missing.join(", ")));
        }
    }
    let coverage = request.recording.map(Recording::coverage);
    let answer = Facts {
        request,
        search: &search,
        best,
        stability: stability.as_ref(),
        failure,
        leak: leak.as_ref(),
        holdings: &holdings,
        others: &others,
        confidence: Confidence::of(check.as_ref(), coverage.as_ref()),
    }
    .answer();
    findings.retain(|finding| !answer.contradicts(finding));
    let advised = best.filter(|_| answer.kind == AnswerKind::Change);
    let limits = [SCHEDULED, ENDED].map(|percent| deadline.at_percent(percent));
    let in_time = (can_fit && request.schedules && leak.is_none())
        .then(|| in_time::search(request, &search, advised, &candidates, limits.into()))
        .flatten();
    if can_fit && request.schedules && limits[0].has_passed() {
        skipped.push("schedules".to_owned());
    }
    let in_order = (can_fit && request.schedules && leak.is_none())
        .then(|| {
            in_time::order::search(
                request,
                &search,
                advised,
                &candidates.lasting,
                in_time.as_ref(),
                limits[1],
            )
        })
        .flatten();
    let mut remarks = [request.remarks, &remarks(request, &search, &skipped)].concat();
    remarks.extend(error);
    Ok(Advice {
        format: 2,
        workload: request.workload.name().to_owned(),
        events: simulator.demand.events,
        allocations: simulator.demand.allocations,
        lower_bound_bytes: simulator.demand.lower_bound_bytes,
        capacity_bytes: simulator.conditions.capacity,
        others_bytes: simulator.conditions.others,
        beside_bytes: request.recording.and_then(Recording::beside_at_end),
        aim: request.aim,
        profile: request.profile.name.clone(),
        addresses: request.conditions.addresses.name(),
        answer,
        check,
        findings,
        holdings,
        peak,
        ranking: ranking::rank(&search, &shown, request.aim, advised),
        others,
        stability,
        in_time,
        in_order,
        conditions: request.sources.to_vec(),
        coverage,
        remarks,
        search: SearchExtent {
            tried: search.tried.len() as u64,
            seconds: (deadline.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            ..search.extent
        },
        skipped,
    })
}

/// Tries the current settings, whose figures on the device are known, and, if the workload can fit, each kind of
/// setting alone.
fn begin<'a>(
    request: &AdviceRequest<'_>,
    simulator: Simulator<'a>,
    sizes: &'a RequestSizes,
    figures: anyhow::Result<RunFigures>,
    can_fit: bool,
    deadline: Deadline,
) -> anyhow::Result<Search<'a>> {
    let free_permille =
        simulator.conditions.available() / (simulator.conditions.capacity / 1000).max(1);
    let generator = CandidateGenerator::new(
        request.present,
        // A limit need not be set.
        request.conditions.limit.is_none().then_some(free_permille),
        request.releases,
        request.conditions.release,
    )
    .without(request.not_throughout);
    let mut search = Search::begin(
        simulator.until(deadline.at_percent(COMPLETED)),
        sizes,
        generator,
        (request.present, figures),
        deadline.at_percent(SEARCHED),
    )?;
    if can_fit {
        search.try_singles();
    }
    Ok(search)
}

/// What explains the memory that a program needs, as far as there was time.
#[derive(Default)]
struct Explanation {
    check: Option<RecordingCheck>,
    findings: Vec<Finding>,
    /// What every step leaves, if it is a part of the peak that matters.
    leak: Option<Leak>,
    holdings: Holdings,
    /// What the program could do in its phases.
    candidates: Candidates,
    /// What the time limit left out.
    skipped: Vec<String>,
    /// Why there are no findings.
    error: Option<String>,
}

impl Explanation {
    /// Verifies the recording and examines the replay under the current settings, in which `failure` may end the
    /// program.
    fn of(
        request: &AdviceRequest<'_>,
        simulator: Simulator<'_>,
        failure: Option<&Failure>,
        deadline: Deadline,
    ) -> Self {
        let until = deadline.at_percent(EXPLAINED);
        let check = |recording| RecordingCheck::of(recording, until.moment());
        let mut explanation = Self {
            check: request.recording.map(check),
            ..Self::default()
        };
        match explanation.examine(request, simulator.until(until), failure) {
            Err(_) if until.has_passed() => explanation.skipped.push("the findings".to_owned()),
            Err(error) => explanation.error = Some(format!("There are no findings: {error:#}.")),
            Ok(()) => {}
        }
        explanation
    }

    /// Finds out who holds memory when a request fails, or else at the peak of requested memory, and the problems.
    fn examine(
        &mut self,
        request: &AdviceRequest<'_>,
        simulator: Simulator<'_>,
        failure: Option<&Failure>,
    ) -> anyhow::Result<()> {
        let workload = simulator.timed(request.reactive);
        let conf = known_part(request.present, request.conditions.release);
        let evidence = Evidence::gather(request.subject(&workload, &conf))?;
        let log = &evidence.log;
        let peak = || log.peak(&(0..log.end()), |level| level.requested);
        let event = failure.map(|failure| failure.event);
        let event = event.or_else(|| peak().map(|(event, _)| event));
        let holders = Holders::of(&evidence);
        self.holdings = holders.at(event.unwrap_or(0));
        self.candidates = Candidates::of(&evidence, &holders);
        let findings = diagnose(&evidence).into_iter();
        self.findings = findings.map(Finding::in_advice).collect();
        let peak = evidence.measures.peak_requested_bytes;
        self.leak = leak(&evidence).filter(|leak| leak.bytes >= peak / LEAK_PART);
        if simulator.deadline.has_passed() {
            // Rules whose replays were cut short find nothing.
            self.skipped.push("some of the findings".to_owned());
        }
        Ok(())
    }
}

/// What the search found out about itself, one sentence each.
fn remarks(request: &AdviceRequest<'_>, search: &Search<'_>, skipped: &[String]) -> Vec<String> {
    let mut remarks = Vec::new();
    let unknown = unknown_keys(request.present, request.conditions.release);
    if !unknown.is_empty() {
        remarks.push(format!(
            "PyTorch {}, the release that is simulated, does not know {} in the current settings. The replays \
             ignore it, and the advised settings keep it.",
            request.conditions.release,
            printable(unknown.join(", "))
        ));
    }
    let unoffered = search.unoffered();
    if !unoffered.is_empty() && request.releases != Releases::REFERENCE {
        remarks.push(format!(
            "The program runs under {}: {} cannot be set there and {} not tried.",
            request.releases.range(),
            listed(&unoffered),
            if unoffered.len() == 1 { "was" } else { "were" }
        ));
    }
    let present = search.tried.get(PRESENT);
    if let Some(error) = present.and_then(|present| present.error.as_ref()) {
        remarks.push(format!(
            "The replay under the current settings failed: {error}."
        ));
    }
    if !skipped.is_empty() {
        remarks.push(format!(
            "Time ran out for {}; --time-limit sets the limit.",
            listed(skipped)
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
        Some(Known {
            conf: &tried.conf,
            change: Change::default(),
            minimum: tried.minimum.known()?,
        })
    };
    match (known(PRESENT), rival.and_then(known)) {
        (Some(present), Some(rival)) => {
            stability::compare(search.simulator, present, rival, copies, deadline)
        }
        _ => None,
    }
}
