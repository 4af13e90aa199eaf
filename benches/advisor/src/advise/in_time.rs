//! What a program could do to PyTorch's allocator at some of its lines, and what that gains over constant settings.
//!
//! Some programs need one setting while they load and another while they train, memory that is requested once at the start,
//! or an empty cache at one place and nowhere else. Each [candidate](candidates) is priced by a replay in which the program
//! does it ([`Scheduled`](coalesce_alloc::scheduled::Scheduled)). A replay ends as soon as the candidate cannot be better than
//! the best constant settings any more. What remains is combined in pairs. The best of all is said only if it is worth a
//! change by the rule for settings: it gains more than the next run may differ, and makes nothing worse.

mod candidates;
pub(super) mod order;
mod remedy;

use std::sync::Arc;

use coalesce_alloc::scheduled::Schedule;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::text::{Unit, count, duration};
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::Step;
use schemars::JsonSchema;
use serde::Serialize;

pub(super) use self::candidates::Candidates;
pub use self::order::InOrder;
pub use self::remedy::Remedy;
use self::remedy::can_be_set;
use super::answer::command;
use super::peak::now;
use super::preference::{self, NEAR};
use super::request::{AdviceRequest, Aim};
use super::search::settings::CandidateSettings;
use super::search::{MinimumMemory, PRESENT, Search, TriedSettings, tolerance};
use super::simulator::{PYTORCH, RunFigures, Simulator};
use super::stability::{self, Change, Known, Stability};
use super::worth::Worth;
use crate::phases::Phase;
use crate::settings_string::{label, with};

/// A schedule that is better than the best constant settings.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct InTime {
    /// The answer in sentences.
    pub sentences: Vec<String>,
    /// The settings string that the program starts with; empty for the defaults.
    pub conf: String,
    /// The shell command that sets it; none if it is set.
    pub command: Option<String>,
    /// What to do at lines of the program.
    pub remedies: Vec<Remedy>,
    /// The same as Python, for the release of the program.
    pub patch: Vec<PatchPart>,
    /// With the schedule.
    pub with_schedule: Figures,
    /// With the best constant settings.
    pub constant: Figures,
    /// How far it holds for the next run: `other` is with the schedule, `present` with the constant settings.
    pub stability: Option<Stability>,
    /// The phases of the program, in order.
    pub phases: Vec<Phase>,
}

/// Lines of Python, and where they go.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct PatchPart {
    /// Where: `before train.py:12, load`.
    pub place: String,
    /// The lines; `…` stands for the line of the program.
    pub lines: Vec<String>,
}

/// The costs of a program.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Figures {
    /// The settings string that the program starts with.
    pub conf: String,
    /// The minimum device memory, in bytes; none if it was not found in time.
    pub least_capacity_bytes: Option<u64>,
    /// On the given device.
    pub on_device: RunFigures,
}

/// What a program does, and its figures.
#[derive(Clone, Debug)]
struct Trial {
    /// The settings that it starts with.
    conf: String,
    remedies: Vec<Remedy>,
    schedule: Arc<Schedule>,
    figures: RunFigures,
}

/// What a schedule has to achieve.
#[derive(Clone, Copy, Debug)]
enum Bar {
    /// No request fails.
    Completes,
    /// It reserves no more bytes.
    Reserves(u64),
    /// It completes with so many bytes of memory.
    Needs(u64),
}

/// Schedules that are tried between two looks at the best so far.
const ROUND: usize = 16;
/// Schedules that are combined with each other.
const COMBINED: usize = 6;
/// Schedules that are examined in full, best first.
const FINALISTS: usize = 4;
/// Lines of Python in a patch.
const MOST_LINES: usize = 5;

/// The best schedule, if one is worth more than the settings that are `advised` (the current ones, if none are) and than those
/// that are best in this run alone. Schedules are tried until `searched`, and compared on copies until `deadline`.
pub(super) fn search(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    advised: Option<usize>,
    candidates: &Candidates,
    (searched, deadline): (Deadline, Deadline),
) -> Option<InTime> {
    let constant = search.tried.get(advised.unwrap_or(PRESENT))?;
    let simulator = search.simulator.until(searched);
    let lower_bound = simulator.demand.lower_bound_bytes;
    let bar = Bar::above(constant, request.aim, lower_bound)?;
    let mut bases = vec![constant.conf.clone(), request.present.to_owned()];
    bases.dedup();
    let mut remedies = Vec::new();
    for base in &bases {
        let settings = candidates.settings(base, &confs(search, request.aim, base));
        let all = candidates.remedies.iter().cloned().chain(settings);
        let all = all.filter(|one| {
            one.is_valid(request.conditions.release) && !one.sets_for_good(request.not_throughout)
        });
        remedies.extend(all.map(|remedy| (base.clone(), vec![remedy])));
    }
    let mut good = tried(simulator, &remedies, bar);
    good.sort_by_key(|trial| (trial.held(), trial.effort()));
    let pairs = pairs(&good);
    good.extend(tried(simulator, &pairs, bar));
    let least = good.iter().map(Trial::held).min()?;
    // Small differences do not decide: what is less effort comes first.
    good.sort_by_key(|trial| {
        let is_near = trial.held() <= least + least / NEAR;
        (!is_near, trial.effort(), trial.held())
    });
    good.iter().take(FINALISTS).find_map(|trial| {
        let until = search.simulator.until(deadline);
        answer(request, search, constant, trial, until, candidates)
    })
}

impl Figures {
    fn of(tried: &TriedSettings) -> Self {
        Self {
            conf: tried.conf.clone(),
            least_capacity_bytes: tried.score(Aim::LeastCapacity),
            on_device: tried.on_device,
        }
    }
}

impl Trial {
    /// The peak of reserved memory, in bytes.
    fn held(&self) -> u64 {
        self.figures.peak_reserved_bytes
    }

    fn effort(&self) -> (usize, (usize, usize), usize) {
        let efforts = self.remedies.iter().map(Remedy::effort);
        let most = efforts.max().unwrap_or_default();
        (self.remedies.len(), most, self.conf.len())
    }
}

impl Bar {
    /// What is better than the constant settings by more than makes a difference; none if nothing can be, or if the aim is
    /// time in the driver, which schedules are not made for.
    fn above(constant: &TriedSettings, aim: Aim, lower_bound: u64) -> Option<Self> {
        let Some(score) = constant.score(aim).filter(|_| constant.fits()) else {
            return Some(Self::Completes);
        };
        let gain = (score / NEAR).max(tolerance(lower_bound));
        let less = score.checked_sub(gain + 1)?;
        match aim {
            _ if less < lower_bound => None,
            Aim::DriverTime => None,
            Aim::Reserved => Some(Self::Reserves(less)),
            Aim::LeastCapacity => Some(Self::Needs(less)),
        }
    }

    /// The figures of a program that follows a schedule, if it passes.
    fn passed(self, simulator: Simulator<'_>, conf: &str) -> Option<RunFigures> {
        if let Self::Needs(bytes) = self
            && !simulator.fits(PYTORCH, conf, bytes).ok()?
        {
            return None;
        }
        let most = match self {
            Self::Reserves(most) => most,
            _ => u64::MAX,
        };
        let mut observer = |step: &Step<'_>| {
            let fails = step.outcome == coalesce_workloads::Outcome::OutOfMemory;
            if fails || now(&step.stats.reserved_bytes) > most {
                return Err(WorkloadError::Stopped("no better".to_owned()));
            }
            Ok(())
        };
        let figures = simulator.observe(conf, &mut observer).ok()?;
        figures.fits().then_some(figures)
    }

    /// The same, or what is as good as the best of some trials.
    fn raised(self, good: &[Trial]) -> Self {
        let best = good.iter().map(Trial::held).min();
        match (self, best) {
            (Self::Reserves(most), Some(best)) => Self::Reserves(most.min(best + best / NEAR)),
            (bar, _) => bar,
        }
    }
}

/// The settings that a phase might have: the best of each kind that can be changed at run time, and those that people use.
fn confs(search: &Search<'_>, aim: Aim, base: &str) -> Vec<String> {
    let kinds = CandidateSettings::KINDS.iter();
    let best = kinds.filter_map(|kind| {
        let best = search.best_where(aim, |settings| settings.is_single() && kind(settings))?;
        search.tried.get(best).map(|tried| tried.conf.clone())
    });
    let usual = [("expandable_segments", "True"), ("max_split_size_mb", "20")];
    let usual = usual.map(|(key, value)| with(base, key, value));
    let mut confs: Vec<String> = best
        .chain(usual)
        .filter(|conf| can_be_set(conf) && conf != base)
        .collect();
    confs.sort();
    confs.dedup();
    confs
}

/// The schedules that pass.
fn tried(simulator: Simulator<'_>, all: &[(String, Vec<Remedy>)], bar: Bar) -> Vec<Trial> {
    let mut good = Vec::new();
    for round in all.chunks(ROUND) {
        let bar = bar.raised(&good);
        let passed = simulator.jobs.map(round, |(conf, remedies)| {
            if simulator.deadline.has_passed() {
                return None;
            }
            let numbered = (0..).zip(remedies);
            let mut actions: Schedule = numbered
                .flat_map(|(number, one)| one.actions(number))
                .collect();
            actions.sort_by_key(|(request, _)| *request);
            let schedule = Arc::new(actions);
            let figures = bar.passed(simulator.following(&schedule), conf)?;
            Some(Trial {
                conf: conf.clone(),
                remedies: remedies.clone(),
                schedule,
                figures,
            })
        });
        good.extend(passed.into_iter().flatten());
    }
    good
}

/// The best schedules, combined in pairs.
fn pairs(good: &[Trial]) -> Vec<(String, Vec<Remedy>)> {
    let best = good.get(..COMBINED).unwrap_or(good);
    let all = best.iter().enumerate();
    let pairs = all.flat_map(|(index, one)| best.iter().skip(index + 1).map(move |two| (one, two)));
    let useful = pairs.filter(|(one, two)| {
        let mut each = one.remedies.iter().zip(&two.remedies);
        one.conf == two.conf && each.all(|(one, two)| one.goes_with(two))
    });
    let both = |one: &Trial, two: &Trial| [&*one.remedies, &two.remedies].concat();
    useful
        .map(|(one, two)| (one.conf.clone(), both(one, two)))
        .collect()
}

/// The answer that advises a schedule, if it is worth a change.
fn answer(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    constant: &TriedSettings,
    trial: &Trial,
    simulator: Simulator<'_>,
    candidates: &Candidates,
) -> Option<InTime> {
    let release = request.conditions.release;
    let part = |remedy: &Remedy| PatchPart {
        place: remedy.place(),
        lines: remedy.python(release),
    };
    let patch: Vec<PatchPart> = trial.remedies.iter().map(part).collect();
    let lines = patch.iter().flat_map(|part| &part.lines);
    if lines.filter(|line| line.trim() != "…").count() > MOST_LINES {
        return None;
    }
    let change = Change {
        schedule: Some(&trial.schedule),
        first: None,
    };
    let follows = simulator.following(&trial.schedule);
    let trial_of = (&*trial.conf, trial.figures, change);
    let (then, stability) = examined(request, search, constant, trial_of, follows)?;
    let now = Figures::of(constant);
    let is_set = trial.conf == request.present;
    let unit = Unit::of(simulator.demand.lower_bound_bytes);
    Some(InTime {
        sentences: sentences(&then, &now, is_set, unit),
        command: (!is_set).then(|| command(&trial.conf, request.present, request.releases)),
        conf: trial.conf.clone(),
        remedies: trial.remedies.clone(),
        patch,
        with_schedule: then,
        constant: now,
        stability,
        phases: candidates.phases.clone(),
    })
}

/// The costs of a program that does something otherwise, whose figures on the device are known, and how far they hold for the
/// next run, if it is worth a change; of no copies, nothing is known.
fn examined(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    constant: &TriedSettings,
    (conf, figures, change): (&str, RunFigures, Change<'_>),
    simulator: Simulator<'_>,
) -> Option<(Figures, Option<Stability>)> {
    let mut tried = TriedSettings::observed(None, conf, figures, simulator).ok()?;
    let minimum = simulator.minimum(PYTORCH, conf, tried.with_room.peak_reserved_bytes);
    tried.minimum = MinimumMemory::Exactly(minimum.ok()?);
    let stability = worth(
        request,
        search,
        constant,
        (&tried, change),
        simulator.deadline,
    )?;
    Some((Figures::of(&tried), stability))
}

/// How far that holds.
#[allow(clippy::option_option)]
fn worth(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    constant: &TriedSettings,
    (tried, change): (&TriedSettings, Change<'_>),
    deadline: Deadline,
) -> Option<Option<Stability>> {
    let aim = request.aim;
    let compared = |now: &TriedSettings, then: &TriedSettings, change| {
        let both = [(now, Change::default()), (then, change)];
        let [now, then] = both.map(|(tried, change)| Known {
            conf: &tried.conf,
            change,
            // Where the minimum of a copy is looked for first.
            minimum: match tried.minimum.known() {
                Some(minimum) => minimum,
                None => tried.with_room.peak_reserved_bytes,
            },
        });
        stability::compare(search.simulator, now, then, request.copies, deadline)
    };
    let against = |other| compared(other, tried, change);
    let usual_ns = preference::usual_ns(&search.tried, constant);
    let is_no_worse = |tried: &TriedSettings| {
        aim != Aim::Reserved
            || !constant.fits()
            || preference::is_no_worse(tried, constant, usual_ns)
    };
    if !is_no_worse(tried) {
        return None;
    }
    let stability = against(constant);
    let lower_bound = search.simulator.demand.lower_bound_bytes;
    let worth = Worth::of(aim, constant, tried, lower_bound, stability.as_ref());
    let is_untested = request.copies > 0 && constant.fits() && stability.is_none();
    if worth != Worth::Change || is_untested {
        return None;
    }
    // Other settings may be as good, if they are so in the next run, too.
    let rival = search.best(aim).and_then(|best| search.tried.get(best));
    let confirms = |stability: Option<Stability>| stability.is_some_and(|one| one.confirms(aim));
    let is_rivalled = rival
        .filter(|rival| rival.conf != constant.conf && rival.fits() && is_no_worse(rival))
        .is_some_and(|rival| {
            !confirms(against(rival)) && confirms(compared(constant, rival, Change::default()))
        });
    (!is_rivalled).then_some(stability)
}

/// What a schedule gains, and what it costs.
fn sentences(then: &Figures, now: &Figures, is_set: bool, unit: Unit) -> Vec<String> {
    let held = |figures: &Figures| unit.amount(figures.on_device.peak_reserved_bytes);
    let needs = |figures: &Figures| {
        figures
            .least_capacity_bytes
            .map_or("?".to_owned(), |bytes| unit.amount(bytes))
    };
    let costs = |figures: &Figures| {
        let on_device = figures.on_device;
        format!(
            "{} in {} of driver time",
            count(on_device.driver_calls, "driver call"),
            duration(on_device.driver_time_ns)
        )
    };
    let constant = label(&now.conf);
    let compared = if now.on_device.fits() {
        format!(
            "The best constant settings, {constant}, hold {} and need {}, with {}.",
            held(now),
            needs(now),
            costs(now)
        )
    } else {
        format!("With the best constant settings, {constant}, it runs out of memory.")
    };
    let with = match (is_set, then.conf == now.conf) {
        (true, true) => "With the lines below",
        (true, false) => "With the lines below and the current settings",
        (false, _) => "With the settings and the lines below",
    };
    vec![format!(
        "{with}, the program holds {} at its peak and needs {}, with {}. {compared}",
        held(then),
        needs(then),
        costs(then)
    )]
}

#[cfg(test)]
mod tests;
