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
//! | `failure.rs` | the request that fails |
//! | `confidence.rs` | how far the answer can be trusted |
//! | `answer.rs` | the answer |
//! | `report/` | the result as text and as an HTML page |

mod advice;
mod answer;
mod check;
mod confidence;
mod failure;
mod others;
mod peak;
pub mod report;
mod request;
mod search;
mod simulator;
mod stability;

use std::collections::BTreeSet;

use anyhow::Context;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::op::Workload;

pub use self::advice::{Advice, RankedSettings};
pub use self::answer::{Answer, AnswerKind, FailureCause};
pub use self::check::RecordingCheck;
pub use self::confidence::{Confidence, ConfidenceLevel};
pub use self::failure::Failure;
pub use self::others::OtherPolicy;
pub use self::peak::PeakBreakdown;
pub(crate) use self::peak::PeakFinder;
pub use self::request::{AdviceRequest, Aim};
pub use self::search::SearchExtent;
pub use self::simulator::RunFigures;
pub use self::stability::{Spread, Spreads, Stability};

use self::answer::Facts;
use self::failure::FailureFinder;
use self::search::candidates::CandidateGenerator;
use self::search::settings::CandidateSettings;
use self::search::sizes::RequestSizes;
use self::search::{MinimumMemory, PRESENT, Search, TriedSettings};
use self::simulator::Simulator;
use crate::diagnose::{Evidence, Finding, Subject, diagnose};

/// Percentages of the time limit after which no more settings, minimum capacities and other policies are
/// tried. The rest is for perturbed copies of the workload.
const SEARCHED: u32 = 50;
const COMPLETED: u32 = 65;
const COMPARED: u32 = 80;
/// Percentage of the time limit after which no more copies are started: each takes about twenty replays.
const COPIED: u32 = 90;

/// Searches for the settings that suit a workload.
///
/// # Errors
/// If the current settings are invalid, or the workload cannot be replayed under them.
pub fn advise(request: &AdviceRequest<'_>) -> anyhow::Result<Advice> {
    let deadline = Deadline::after(request.time_limit);
    let progress = Progress::new("replays", None);
    let simulator = Simulator {
        progress: Some(&progress),
        ..Simulator::of(request)?
    };
    let sizes = RequestSizes::of(request.workload)?;
    let free_permille = simulator.available() / (simulator.capacity / 1000).max(1);
    let generator = CandidateGenerator::new(request.present, free_permille);
    let check = request.recording.map(RecordingCheck::of);
    let findings = findings(request)?;
    let mut failure = FailureFinder::default();
    let mut peak = (PeakFinder::default(), &mut failure);
    simulator
        .observe(request.present, &mut peak)
        .context("under the current settings (set with --conf)")?;
    let peak = peak.0.peak;
    let mut search = Search::begin(
        simulator,
        &sizes,
        generator,
        request.present,
        deadline.at_percent(SEARCHED),
    )?;
    search.run(request.aim)?;
    let completed = deadline.at_percent(COMPLETED);
    let shown = shown(&mut search, request.aim, completed)?;
    search.look_above(completed)?;
    let others = others::compare(simulator, deadline.at_percent(COMPARED));
    let best = search.best(request.aim);
    let rival = best
        .filter(|&best| best != PRESENT)
        .or_else(|| search.next_best(request.aim, PRESENT));
    let copied = deadline.at_percent(COPIED);
    let stability = stability_against(&search, rival, request.copies, copied)?;
    let answer = Facts {
        request,
        search: &search,
        best,
        stability: stability.as_ref(),
        failure: failure.found(),
        confidence: Confidence::of(check.as_ref()),
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
        peak,
        ranking: rank(&search, &shown, request.aim, advised),
        others,
        stability,
        remarks: request.remarks.to_vec(),
        search: SearchExtent {
            seconds: (deadline.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            ..search.extent
        },
    })
}

fn findings(request: &AdviceRequest<'_>) -> anyhow::Result<Vec<Finding>> {
    let evidence = Evidence::gather(Subject {
        workload: request.reactive,
        recording: request.recording,
        conf: request.present,
        capacity: request.capacity.saturating_sub(request.others),
        limit: request.limit,
        address_policy: request.addresses,
    });
    let evidence = evidence.context("under the current settings (set with --conf)")?;
    Ok(diagnose(&evidence))
}

/// The indices of the settings to show, after their minimum memory has been found: the current settings,
/// the defaults, the best for each aim and the best of each kind alone.
fn shown(search: &mut Search<'_>, aim: Aim, deadline: Deadline) -> anyhow::Result<BTreeSet<usize>> {
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
    search.complete(&shown, deadline)?;
    // The minimum memory just found may change which settings are best.
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    Ok(shown)
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
) -> anyhow::Result<Option<Stability>> {
    let known = |index: usize| {
        let tried = search.tried.get(index)?;
        Some((tried.conf.as_str(), tried.minimum.known()?))
    };
    match (known(PRESENT), rival.and_then(known)) {
        (Some(present), Some(rival)) => {
            stability::compare(search.simulator, present, rival, copies, deadline)
        }
        _ => Ok(None),
    }
}
