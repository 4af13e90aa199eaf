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
mod minimum;
pub(super) mod settings;
pub(super) mod sizes;
mod tried;

use std::collections::BTreeSet;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_bench::measure::deadline::Deadline;
use schemars::JsonSchema;
use serde::Serialize;

use self::candidates::{CandidateGenerator, pairs};
use self::settings::CandidateSettings;
use self::sizes::RequestSizes;
pub(super) use self::tried::{MinimumMemory, TriedSettings};
use super::request::Aim;
use super::simulator::{RunFigures, Simulator};
use crate::diagnose::Finding;

/// The index of the current settings in [`Search::tried`].
pub(super) const PRESENT: usize = 0;

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
        let as_generated = generated
            .iter()
            .find(|(conf, _)| conf == present)
            .map(|(_, settings)| settings.clone());
        let mut first: Vec<Candidate> = vec![(as_generated, present.to_owned())];
        let others = generated
            .into_iter()
            .filter(|(conf, _)| conf != present && generator.can_have(conf))
            .filter(|(conf, _)| generator.not_offered(conf).next().is_none());
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
        let tried = simulator.jobs.map(&first, |(settings, conf)| {
            let figures = if conf == present {
                figures.clone().map_err(anyhow::Error::msg)
            } else {
                simulator.observe(conf, &mut ())
            };
            let mut tried = TriedSettings::observed(settings.clone(), conf, figures?, simulator)?;
            minimum::find(&mut tried, simulator)?;
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
        Ok(search)
    }

    /// Tries each kind of setting alone, until the deadline.
    pub fn try_singles(&mut self) {
        let singles = self.generator.singles(self.sizes);
        self.round(singles);
    }

    /// Tries the settings that findings evaluated, and notes which of the settings tried come from a finding.
    pub fn try_findings(&mut self, findings: &[Finding]) {
        let confs: Vec<(&'static str, Candidate)> = findings
            .iter()
            .filter_map(|finding| {
                let conf = finding.conf.as_deref()?;
                Some((finding.rule, self.generator.read(conf)))
            })
            .collect();
        let beside = confs.iter().filter_map(|(_, (settings, _))| {
            let beside = self.generator.expandable_beside(settings.as_ref()?)?;
            Some((Some(beside.clone()), beside.to_string()))
        });
        let beside: Vec<Candidate> = beside.collect();
        let found = confs.iter().map(|(_, candidate)| candidate.clone());
        self.try_all(found.chain(beside));
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
        let mut good = Vec::new();
        for kind in CandidateSettings::KINDS {
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
                let tried = self.tried.iter();
                let of_kind = tried.filter(|tried| tried.settings.as_ref().is_some_and(kind));
                let best = of_kind.min_by_key(order);
                good.extend(best.and_then(|tried| tried.settings.clone()));
            }
        }
        good.sort();
        good.dedup();
        good
    }

    /// Tries the candidates that are valid, each at most once in a search.
    fn round(&mut self, candidates: Vec<CandidateSettings>) {
        let release = self.simulator.conditions.release;
        let candidates = candidates.into_iter();
        let valid = candidates.filter(|settings| settings.is_valid(release));
        self.try_all(valid.map(|settings| {
            let conf = settings.to_string();
            (Some(settings), conf)
        }));
    }

    fn try_all(&mut self, candidates: impl Iterator<Item = Candidate>) {
        let (seen, unoffered, generator) = (&mut self.seen, &mut self.unoffered, &self.generator);
        let fresh: Vec<Candidate> = candidates
            .filter(|(_, conf)| generator.can_have(conf))
            .filter(|(_, conf)| {
                let mut keys = generator.not_offered(conf).peekable();
                let is_offered = keys.peek().is_none();
                unoffered.extend(keys.map(str::to_owned));
                is_offered && seen.insert(conf.clone())
            })
            .collect();
        let simulator = self.simulator.until(self.deadline);
        let known = self
            .tried
            .iter()
            .filter_map(|tried| tried.score(Aim::LeastCapacity));
        let bound = known.min().unwrap_or(u64::MAX);
        let results = simulator.jobs.map(&fresh, |(settings, conf)| {
            let figures = simulator.observe(conf, &mut ())?;
            let mut tried = TriedSettings::observed(settings.clone(), conf, figures, simulator)?;
            minimum::find_below(bound, &mut tried, simulator)?;
            anyhow::Ok(tried)
        });
        for result in results {
            match result {
                Ok(tried) => self.tried.push(tried),
                Err(_) if self.deadline.has_passed() => self.extent.left += 1,
                // Never advise a setting that breaks the allocator.
                Err(_) => self.extent.failed += 1,
            }
        }
    }

    /// Keys of settings worth trying that a release in question does not know.
    pub fn unoffered(&self) -> Vec<String> {
        self.unoffered.iter().cloned().collect()
    }

    /// The index of the best settings for an aim. Among settings within the tolerance, those under which the workload
    /// completes on the given device are best, then those with the fewest keys, and among these the ones with the best
    /// other figures.
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
        let others = self
            .tried
            .iter()
            .enumerate()
            .filter(|&(index, _)| index != excluded);
        let scored = others.filter_map(|(index, tried)| Some((tried.score(aim)?, index)));
        scored.min().map(|(_, index)| index)
    }

    /// The index of the best settings of a kind for an aim.
    pub fn best_where(&self, aim: Aim, kind: impl Fn(&CandidateSettings) -> bool) -> Option<usize> {
        let tried = self.tried.iter().enumerate();
        let of_kind = tried.filter(|(_, tried)| tried.settings.as_ref().is_some_and(&kind));
        self.best_of(aim, of_kind)
    }

    fn best_of<'t>(
        &self,
        aim: Aim,
        tried: impl Iterator<Item = (usize, &'t TriedSettings)> + Clone,
    ) -> Option<usize> {
        let lowest = tried
            .clone()
            .filter_map(|(_, tried)| tried.score(aim))
            .min()?;
        let as_good = match aim {
            Aim::LeastCapacity | Aim::Reserved => {
                lowest.saturating_add(tolerance(self.lower_bound()))
            }
            Aim::DriverTime => lowest.saturating_add(lowest / 50),
        };
        let good = tried.filter(|(_, tried)| tried.score(aim).is_some_and(|s| s <= as_good));
        let best = good.min_by_key(|(_, tried)| {
            (
                // Within the tolerance, some may need a little more than the device has.
                !tried.fits(),
                tried.keys,
                tried.score(aim),
                tried.on_device.driver_time_ns,
                tried.minimum.known().unwrap_or(u64::MAX),
            )
        });
        best.map(|(index, _)| index)
    }

    fn lower_bound(&self) -> u64 {
        self.simulator.demand.lower_bound_bytes
    }
}

/// Bytes that make no difference: half a percent of the peak of requested memory, at least one page.
pub(super) fn tolerance(lower_bound: u64) -> u64 {
    (lower_bound / 200).max(GRANULARITY)
}

#[cfg(test)]
mod tests;
