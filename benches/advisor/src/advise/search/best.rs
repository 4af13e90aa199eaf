//! The best of the settings that were tried.

use super::settings::CandidateSettings;
use super::tried::TriedSettings;
use super::{PRESENT, Search, tolerance};
use crate::advise::request::Aim;

impl Search<'_> {
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
