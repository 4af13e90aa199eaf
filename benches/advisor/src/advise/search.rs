//! Decides which settings are tried, and how thoroughly.
//!
//! Every candidate is replayed on the given device, and on a roomy device if that makes a difference. Finding
//! the minimum memory takes about twelve more replays, so it is found only for settings that can be best: one
//! replay just below the best minimum so far tells whether a candidate is better, and only then is its minimum
//! bisected. The settings tried depend only on the workload and the device, not on the order of threads.
//!
//! Every replay ends at a deadline. What is known by then is kept. Settings under which the allocator fails are
//! counted and never advised.

pub(super) mod candidates;
pub(super) mod settings;
pub(super) mod sizes;

use std::collections::BTreeSet;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::settings::written;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::{Bracket, fails_above};
use coalesce_bench::measure::parallel;
use schemars::JsonSchema;
use serde::Serialize;

use self::candidates::{CandidateGenerator, pairs};
use self::settings::CandidateSettings;
use self::sizes::RequestSizes;
use super::request::Aim;
use super::simulator::{PYTORCH, RunFigures, Simulator};
use crate::diagnose::Finding;

/// The index of the current settings in [`Search::tried`].
pub(super) const PRESENT: usize = 0;

/// Settings with what is known about them.
#[derive(Clone, Debug)]
pub(super) struct TriedSettings {
    /// `None` for current settings that the search would not generate.
    pub settings: Option<CandidateSettings>,
    /// The settings string.
    pub conf: String,
    pub on_device: RunFigures,
    /// Figures on a roomy device.
    pub with_room: RunFigures,
    pub minimum: MinimumMemory,
    /// More memory than the minimum with which the workload fails nevertheless; `None` if not tested or not
    /// found.
    pub fails_above: Option<u64>,
    /// Whether that was tested.
    pub looked_above: bool,
    /// Why the allocator failed under them. They have no score then.
    pub error: Option<String>,
    /// The number of keys they set. 0 for current settings that the search would not generate.
    keys: usize,
    /// The rules of the findings that evaluated them.
    pub suggested_by: Vec<&'static str>,
}

/// What is known about the minimum memory of settings, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MinimumMemory {
    Exactly(u64),
    AtLeast(u64),
}

impl MinimumMemory {
    /// The minimum, if it has been found.
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Exactly(bytes) => Some(bytes),
            Self::AtLeast(_) => None,
        }
    }
}

impl TriedSettings {
    /// The score for an aim; lower is better. `None` if it is unknown or the workload does not complete.
    pub fn score(&self, aim: Aim) -> Option<u64> {
        match aim {
            _ if self.error.is_some() => None,
            Aim::LeastCapacity => self.safe(),
            _ if !self.on_device.fits() => None,
            Aim::DriverTime => Some(self.on_device.driver_time_ns),
            Aim::Reserved => Some(self.on_device.peak_reserved_bytes),
        }
    }

    /// The memory from which on the workload always completes, as far as tested: one page more than the
    /// largest amount with which it fails.
    fn safe(&self) -> Option<u64> {
        let minimum = self.minimum.known()?;
        let above = self
            .fails_above
            .map(|bytes| bytes.saturating_add(GRANULARITY));
        Some(above.map_or(minimum, |above| above.max(minimum)))
    }

    /// Whether the workload completes on the given device.
    pub fn fits(&self) -> bool {
        self.error.is_none() && self.on_device.fits()
    }

    #[cfg(test)]
    pub fn with_minimum(conf: &str, minimum: u64) -> Self {
        Self {
            minimum: MinimumMemory::Exactly(minimum),
            ..Self::new(None, conf, 0)
        }
    }

    fn new(settings: Option<CandidateSettings>, conf: &str, lower_bound: u64) -> Self {
        Self {
            keys: match &settings {
                Some(settings) => settings.keys(),
                None => written(conf).filter(|(key, _)| !key.is_empty()).count(),
            },
            settings,
            conf: conf.to_owned(),
            on_device: RunFigures::default(),
            with_room: RunFigures::default(),
            minimum: MinimumMemory::AtLeast(lower_bound),
            fails_above: None,
            looked_above: false,
            error: None,
            suggested_by: Vec::new(),
        }
    }
}

/// How much was searched.
#[derive(Clone, Copy, PartialEq, Debug, Default, JsonSchema, Serialize)]
pub struct SearchExtent {
    /// Settings tried.
    pub tried: u64,
    /// Settings left untried when time was up.
    pub left: u64,
    /// Settings under which the allocator failed.
    pub failed: u64,
    /// Duration of the search, the only figure that differs from run to run.
    pub seconds: f64,
}

pub(super) struct Search<'a> {
    pub simulator: Simulator<'a>,
    sizes: &'a RequestSizes,
    generator: CandidateGenerator,
    deadline: Deadline,
    seen: BTreeSet<String>,
    /// Keys of candidates that were not tried because a release does not know them.
    unoffered: BTreeSet<String>,
    pub tried: Vec<TriedSettings>,
    pub extent: SearchExtent,
}

/// Settings to try, and their string.
type Candidate = (Option<CandidateSettings>, String);

impl<'a> Search<'a> {
    /// Tries the current settings first, whose figures on the device are known, then the defaults and expandable
    /// segments, and finds the minimum memory of each. Replays end at the simulator's deadline, and rounds of
    /// further settings at `deadline`.
    ///
    /// # Errors
    /// If there is no time for the current settings. Settings under which the allocator fails are not an error.
    pub fn begin(
        simulator: Simulator<'a>,
        sizes: &'a RequestSizes,
        generator: CandidateGenerator,
        (present, figures): (&str, anyhow::Result<RunFigures>),
        deadline: Deadline,
    ) -> anyhow::Result<Self> {
        let generated = [generator.defaults(), generator.expandable()]
            .map(|settings| (settings.to_string(), settings));
        let as_generated = generated.iter().find(|(conf, _)| conf == present);
        let as_generated = as_generated.map(|(_, settings)| settings.clone());
        let mut first: Vec<Candidate> = vec![(as_generated, present.to_owned())];
        let others = generated
            .into_iter()
            .filter(|(conf, _)| conf != present && generator.not_offered(conf).next().is_none());
        first.extend(others.map(|(conf, settings)| (Some(settings), conf)));
        let figures = figures.map_err(|error| format!("{error:#}"));
        let mut search = Self {
            simulator,
            sizes,
            generator,
            deadline,
            seen: first.iter().map(|(_, conf)| conf.clone()).collect(),
            unoffered: BTreeSet::new(),
            tried: Vec::new(),
            extent: SearchExtent::default(),
        };
        let tried = parallel::map(&first, |(settings, conf)| {
            let figures = match conf == present {
                true => figures.clone().map_err(anyhow::Error::msg),
                false => simulator.observe(conf, &mut ()),
            };
            let mut tried = search.with_room(settings.clone(), conf, simulator, figures?)?;
            search.find_minimum(&mut tried, simulator)?;
            anyhow::Ok(tried)
        });
        for (index, (tried, (settings, conf))) in tried.into_iter().zip(first).enumerate() {
            let is_late = simulator.deadline.has_passed();
            match tried {
                Ok(tried) => search.tried.push(tried),
                Err(error) if index == PRESENT && is_late => return Err(error),
                Err(error) if index == PRESENT => search.tried.push(TriedSettings {
                    error: Some(format!("{error:#}")),
                    ..TriedSettings::new(settings, &conf, search.lower_bound())
                }),
                Err(_) if is_late => search.extent.left += 1,
                Err(_) => search.extent.failed += 1,
            }
        }
        if let Some(present) = search.tried.get_mut(PRESENT) {
            // Among equally good settings, the current ones are best.
            present.keys = present.settings.as_ref().map_or(0, CandidateSettings::keys);
        }
        search.extent.tried = search.tried.len() as u64;
        Ok(search)
    }

    /// Tries each kind of setting alone, until the deadline.
    pub fn try_singles(&mut self) {
        let singles = self.generator.singles(self.sizes);
        self.round(singles);
    }

    /// Tries the settings that findings evaluated, and notes which of the settings tried come from a finding.
    pub fn try_findings(&mut self, findings: &[Finding]) {
        let confs = findings.iter().filter_map(|finding| {
            let conf = finding.conf.as_deref()?;
            Some((finding.rule, self.generator.read(conf)))
        });
        let confs: Vec<(&'static str, Candidate)> = confs.collect();
        self.try_all(confs.iter().map(|(_, candidate)| candidate.clone()));
        for tried in &mut self.tried {
            let same = confs.iter().filter(|(_, (_, conf))| *conf == tried.conf);
            tried.suggested_by = same.map(|(rule, _)| *rule).collect();
        }
    }

    /// Tries finer steps and combinations of the best settings so far, until the deadline.
    pub fn refine(&mut self, aim: Aim) {
        const ROUNDS: usize = 3;
        for _ in 0..ROUNDS {
            let good = self.good(aim);
            let tried = self
                .tried
                .iter()
                .filter_map(|tried| tried.settings.as_ref());
            let lines: Vec<u64> = tried
                .filter_map(|settings| settings.max_split_mib)
                .collect();
            let mut next = pairs(&good);
            for settings in &good {
                next.extend(self.generator.around(settings, &lines, self.sizes));
            }
            self.round(next);
        }
    }

    /// The best of each kind, for the aim and for the minimum memory.
    fn good(&self, aim: Aim) -> Vec<CandidateSettings> {
        let kinds: [fn(&CandidateSettings) -> bool; 5] = [
            |settings| settings.expandable,
            |settings| settings.max_split_mib.is_some(),
            |settings| settings.roundup.is_some(),
            |settings| settings.collector.is_some(),
            |settings| settings.large_segment_mib.is_some(),
        ];
        let mut good = Vec::new();
        for kind in kinds {
            for aim in [aim, Aim::LeastCapacity] {
                // If the minimum memory is unknown, the settings that reserve least are taken.
                let order = |tried: &&TriedSettings| {
                    (
                        tried.score(aim).unwrap_or(u64::MAX),
                        tried.on_device.ooms,
                        tried.on_device.retries,
                        tried.with_room.peak_reserved_bytes,
                    )
                };
                let best = self.of_kind(kind).min_by_key(order);
                good.extend(best.and_then(|tried| tried.settings.clone()));
            }
        }
        good.sort();
        good.dedup();
        good
    }

    fn of_kind(
        &self,
        kind: impl Fn(&CandidateSettings) -> bool,
    ) -> impl Iterator<Item = &TriedSettings> {
        let tried = self.tried.iter();
        tried.filter(move |tried| tried.settings.as_ref().is_some_and(&kind))
    }

    /// Tries candidates, each at most once in a search.
    fn round(&mut self, candidates: Vec<CandidateSettings>) {
        let candidates = candidates.into_iter();
        self.try_all(candidates.map(|settings| {
            let conf = settings.to_string();
            (Some(settings), conf)
        }));
    }

    fn try_all(&mut self, candidates: impl Iterator<Item = Candidate>) {
        let (seen, unoffered, generator) = (&mut self.seen, &mut self.unoffered, &self.generator);
        let fresh = candidates.filter(|(_, conf)| {
            let mut keys = generator.not_offered(conf).peekable();
            let is_offered = keys.peek().is_none();
            unoffered.extend(keys.map(str::to_owned));
            is_offered && seen.insert(conf.clone())
        });
        let fresh: Vec<Candidate> = fresh.collect();
        let simulator = self.simulator.until(self.deadline);
        let known = self
            .tried
            .iter()
            .filter_map(|tried| tried.score(Aim::LeastCapacity));
        let bound = known.min().unwrap_or(u64::MAX);
        let results = parallel::map(&fresh, |(settings, conf)| {
            (!self.deadline.has_passed()).then(|| {
                let figures = simulator.observe(conf, &mut ())?;
                let mut tried = self.with_room(settings.clone(), conf, simulator, figures)?;
                self.find_minimum_below(bound, &mut tried, simulator)?;
                anyhow::Ok(tried)
            })
        });
        for result in results {
            match result {
                Some(Ok(tried)) => self.tried.push(tried),
                Some(Err(_)) if self.deadline.has_passed() => self.extent.left += 1,
                // Never advise a setting that breaks the allocator.
                Some(Err(_)) => self.extent.failed += 1,
                None => self.extent.left += 1,
            }
        }
        self.extent.tried = self.tried.len() as u64;
    }

    /// Keys of settings worth trying that a release in question does not know.
    pub fn unoffered(&self) -> Vec<String> {
        self.unoffered.iter().cloned().collect()
    }

    /// Settings with their figures on the given device, and on a roomy one.
    fn with_room(
        &self,
        settings: Option<CandidateSettings>,
        conf: &str,
        simulator: Simulator<'_>,
        on_device: RunFigures,
    ) -> anyhow::Result<TriedSettings> {
        Ok(TriedSettings {
            on_device,
            with_room: simulator.with_room(PYTORCH, conf, on_device)?,
            ..TriedSettings::new(settings, conf, self.lower_bound())
        })
    }

    /// Finds the minimum memory if it is lower than `bound` by more than the tolerance, or as much about it as the
    /// simulator's deadline allows.
    fn find_minimum_below(
        &self,
        bound: u64,
        tried: &mut TriedSettings,
        simulator: Simulator<'_>,
    ) -> anyhow::Result<()> {
        let lower_bound = self.lower_bound();
        let target = bound.saturating_sub(tolerance(lower_bound));
        let target = target / GRANULARITY * GRANULARITY;
        if target < lower_bound {
            tried.minimum = MinimumMemory::AtLeast(lower_bound);
            return Ok(());
        }
        match simulator.fits(PYTORCH, &tried.conf, target) {
            Ok(true) => narrow(tried, simulator, Bracket::new(lower_bound, target)),
            Ok(false) => {
                tried.minimum = MinimumMemory::AtLeast(target);
                Ok(())
            }
            Err(_) if simulator.deadline.has_passed() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds the minimum memory, or as much about it as the simulator's deadline allows.
    fn find_minimum(
        &self,
        tried: &mut TriedSettings,
        simulator: Simulator<'_>,
    ) -> anyhow::Result<()> {
        let MinimumMemory::AtLeast(floor) = tried.minimum else {
            return Ok(());
        };
        let fits = |bytes: u64| simulator.fits(PYTORCH, &tried.conf, bytes);
        let reserved = tried.with_room.peak_reserved_bytes;
        let mut bracket = Bracket::new(self.lower_bound(), reserved);
        match bracket.widen(&fits) {
            Ok(()) => {
                bracket.learn(floor.saturating_sub(GRANULARITY), false);
                narrow(tried, simulator, bracket)
            }
            Err(_) if simulator.deadline.has_passed() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Finds the minimum memory of some tried settings, by index, until the deadline.
    pub fn complete(&mut self, which: &BTreeSet<usize>, deadline: Deadline) {
        let simulator = self.simulator.until(deadline);
        let which: Vec<usize> = which.iter().copied().collect();
        let found = parallel::map(&which, |&index| {
            let mut tried = self.tried.get(index)?.clone();
            if deadline.has_passed() || tried.error.is_some() {
                return None;
            }
            if let Err(error) = self.find_minimum(&mut tried, simulator) {
                tried.error = Some(format!("{error:#}"));
            }
            Some(tried)
        });
        for (index, found) in which.into_iter().zip(found) {
            if let (Some(tried), Some(found)) = (self.tried.get_mut(index), found) {
                self.extent.failed += u64::from(found.error.is_some());
                *tried = found;
            }
        }
    }

    /// Tests whether the current settings and those with the lowest minimum memory fail with more memory than
    /// that. Repeats this until the best settings have been tested.
    pub fn look_above(&mut self, deadline: Deadline) {
        let simulator = self.simulator.until(deadline);
        let mut next = Some(PRESENT);
        while let Some(tried) = next.and_then(|index| self.tried.get_mut(index)) {
            if let Some(minimum) = tried.minimum.known() {
                let fits = |bytes: u64| simulator.fits(PYTORCH, &tried.conf, bytes);
                match fails_above(minimum, tried.with_room.peak_reserved_bytes, &fits) {
                    Ok(found) => tried.fails_above = found,
                    Err(_) if deadline.has_passed() => return,
                    Err(error) => {
                        tried.error = Some(format!("{error:#}"));
                        self.extent.failed += 1;
                    }
                }
            }
            tried.looked_above = true;
            let is_untested = |&index: &usize| {
                let tried = self.tried.get(index);
                tried.is_some_and(|tried| !tried.looked_above)
            };
            next = self.best(Aim::LeastCapacity).filter(is_untested);
        }
    }

    fn lower_bound(&self) -> u64 {
        self.simulator.demand.lower_bound_bytes
    }

    /// The index of the best settings for an aim. Among settings within the tolerance, those with the fewest
    /// keys are best, and among these the ones with the best other figures.
    pub fn best(&self, aim: Aim) -> Option<usize> {
        let best = |aim| self.best_of(aim, self.tried.iter().enumerate());
        let fits_now = self.tried.get(PRESENT).is_some_and(TriedSettings::fits);
        match aim {
            // If there was no time to find any minimum memory, settings that make the workload fit.
            Aim::LeastCapacity if !fits_now => best(aim).or_else(|| best(Aim::Reserved)),
            _ => best(aim),
        }
    }

    /// The index of the best settings for an aim other than `excluded`.
    pub fn next_best(&self, aim: Aim, excluded: usize) -> Option<usize> {
        let others = self.tried.iter().enumerate();
        let others = others.filter(|&(index, _)| index != excluded);
        let scored = others.filter_map(|(index, tried)| Some((tried.score(aim)?, index)));
        scored.min().map(|(_, index)| index)
    }

    /// The index of the best settings of a kind for an aim.
    pub fn best_where(&self, aim: Aim, kind: fn(&CandidateSettings) -> bool) -> Option<usize> {
        let tried = self.tried.iter().enumerate();
        let of_kind = tried.filter(|(_, tried)| tried.settings.as_ref().is_some_and(kind));
        self.best_of(aim, of_kind)
    }

    fn best_of<'t>(
        &self,
        aim: Aim,
        tried: impl Iterator<Item = (usize, &'t TriedSettings)> + Clone,
    ) -> Option<usize> {
        let lowest = tried.clone().filter_map(|(_, tried)| tried.score(aim));
        let lowest = lowest.min()?;
        let as_good = match aim {
            Aim::LeastCapacity | Aim::Reserved => {
                lowest.saturating_add(tolerance(self.lower_bound()))
            }
            Aim::DriverTime => lowest.saturating_add(lowest / 50),
        };
        let good = tried.filter(|(_, tried)| tried.score(aim).is_some_and(|s| s <= as_good));
        let best = good.min_by_key(|(_, tried)| {
            (
                tried.keys,
                tried.score(aim),
                tried.on_device.driver_time_ns,
                tried.minimum.known().unwrap_or(u64::MAX),
            )
        });
        best.map(|(index, _)| index)
    }
}

/// Closes the bracket of the minimum memory, as far as the simulator's deadline allows. What is known to the
/// tolerance by then is good enough.
fn narrow(
    tried: &mut TriedSettings,
    simulator: Simulator<'_>,
    mut bracket: Bracket,
) -> anyhow::Result<()> {
    let closed = bracket.close(&|bytes| simulator.fits(PYTORCH, &tried.conf, bytes));
    tried.minimum = match closed {
        Ok(()) => MinimumMemory::Exactly(bracket.suffices()),
        Err(_)
            if bracket.suffices() - bracket.at_least()
                <= tolerance(simulator.demand.lower_bound_bytes) =>
        {
            MinimumMemory::Exactly(bracket.suffices())
        }
        Err(_) if simulator.deadline.has_passed() => MinimumMemory::AtLeast(bracket.at_least()),
        Err(error) => return Err(error),
    };
    Ok(())
}

/// Bytes that make no difference: half a percent of the peak of requested memory, at least one page.
pub(super) fn tolerance(lower_bound: u64) -> u64 {
    (lower_bound / 200).max(GRANULARITY)
}
