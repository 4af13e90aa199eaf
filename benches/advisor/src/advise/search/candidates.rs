//! Generates the settings worth trying for a workload.
//!
//! First each kind of setting alone, in coarse steps, at values that matter for the sizes requested. Then
//! finer steps around good settings, and good settings of different kinds combined.

use std::iter::once;

use coalesce_alloc::release::Release;
use coalesce_alloc::settings::written;
use coalesce_workloads::formats::snapshot::release::Releases;

use super::settings::{
    CandidateSettings, CollectorSetting, MEMORY_FRACTION, RoundupSetting, kept_of,
};
use super::sizes::{MIB, RequestSizes};
use crate::settings_string::unknown_keys;

/// The size of segments that requests below 10 MiB share, and the lowest valid `max_split_size_mb`.
const LARGE_SEGMENT_MIB: u64 = 20;
/// The number of values of `max_split_size_mb` that are tried first.
const SPLIT_LINES: u64 = 10;
/// A range with at least this many different sizes may benefit from rounding.
const CROWDED: u64 = 8;

/// Generates candidates for a device and the current settings.
#[derive(Clone, Debug)]
pub(in crate::advise) struct CandidateGenerator {
    /// As [`CandidateSettings::kept`].
    kept: String,
    /// The current settings that the simulated release does not know, which are part of `kept`.
    unknown: Vec<String>,
    /// The keys of the current settings.
    present: Vec<String>,
    /// Thousandths of the device that others leave free, the limit that the collector needs. `None` if the program
    /// has a limit.
    free_permille: Option<u64>,
    releases: Releases,
    /// The release that is simulated.
    release: Release,
    /// Keys that the program cannot have all the time.
    excluded: Vec<String>,
}

impl CandidateGenerator {
    pub fn new(
        present: &str,
        free_permille: Option<u64>,
        releases: Releases,
        release: Release,
    ) -> Self {
        let keys = written(present).map(|(key, _)| key.to_owned()).collect();
        let unknown = unknown_keys(present, release);
        let unknown = written(present).filter(|(key, _)| unknown.iter().any(|one| one == key));
        Self {
            kept: kept_of(present),
            unknown: unknown.map(|(_, setting)| setting.to_owned()).collect(),
            present: keys,
            free_permille,
            releases,
            release,
            excluded: Vec::new(),
        }
    }

    /// The same without candidates that set these keys.
    pub fn without(self, keys: &[String]) -> Self {
        Self {
            excluded: keys.to_vec(),
            ..self
        }
    }

    /// Whether the program can have these settings all the time.
    pub fn can_have(&self, conf: &str) -> bool {
        let mut keys = written(conf);
        !keys.any(|(key, _)| self.excluded.iter().any(|excluded| excluded == key))
    }

    /// The keys that a settings string adds to the current ones and that a release in question does not know.
    pub fn not_offered<'c>(&self, conf: &'c str) -> impl Iterator<Item = &'c str> {
        let unknown = self.releases.unknown_keys(conf);
        unknown.filter(|key| !self.present.iter().any(|present| present == key))
    }

    /// The default settings.
    pub fn defaults(&self) -> CandidateSettings {
        CandidateSettings {
            kept: self.kept.clone(),
            ..CandidateSettings::default()
        }
    }

    /// Expandable segments alone.
    pub fn expandable(&self) -> CandidateSettings {
        CandidateSettings {
            expandable: true,
            ..self.defaults()
        }
    }

    /// Expandable segments with what other settings keep, if that is not what the current ones do: the finding that a limit of
    /// one's own is too low removes it, and the program is then like any other.
    pub fn expandable_beside(&self, settings: &CandidateSettings) -> Option<CandidateSettings> {
        (settings.kept != self.kept && !settings.expandable).then(|| CandidateSettings {
            kept: settings.kept.clone(),
            expandable: true,
            ..CandidateSettings::default()
        })
    }

    /// The candidate with these settings, which lack those that the simulated release does not know.
    pub fn read(&self, conf: &str) -> (Option<CandidateSettings>, String) {
        let all: Vec<&str> = once(conf)
            .filter(|conf| !conf.is_empty())
            .chain(self.unknown.iter().map(String::as_str))
            .collect();
        let conf = all.join(",");
        let settings = CandidateSettings::read(&conf, self.release);
        let conf = settings.as_ref().map_or(conf, ToString::to_string);
        (settings, conf)
    }

    /// Each kind alone, in turns, so that every kind has been tried if time runs out early.
    pub fn singles(&self, sizes: &RequestSizes) -> Vec<CandidateSettings> {
        let splits = split_values(sizes)
            .into_iter()
            .map(|mib| CandidateSettings {
                max_split_mib: Some(mib),
                ..self.defaults()
            });
        let roundups = roundups(sizes)
            .into_iter()
            .map(|roundup| CandidateSettings {
                roundup: Some(roundup),
                ..self.defaults()
            });
        // The collector needs a limit: all available memory, but below 1.0, which means no limit.
        let limit = self
            .free_permille
            .filter(|_| !self.kept.contains(MEMORY_FRACTION))
            .map(|permille| permille.clamp(1, 999));
        let collectors = [80, 60, 50, 70, 90].map(|threshold_percent| CandidateSettings {
            collector: Some(CollectorSetting {
                threshold_percent,
                fraction_permille: limit,
            }),
            ..self.defaults()
        });
        // Requests below 10 MiB share segments.
        let shared: &[u64] = if sizes.any_between(MIB, 10 * MIB) {
            &[64, 12, 32, 128]
        } else {
            &[]
        };
        let segments = shared.iter().map(|&mib| CandidateSettings {
            large_segment_mib: Some(mib),
            ..self.defaults()
        });
        // Every request above 1 MiB uses pages of an expandable segment.
        let pages = [12, 32, 64].map(|mib| CandidateSettings {
            large_segment_mib: Some(mib),
            ..self.expandable()
        });
        in_turns([
            pages.to_vec(),
            splits.collect(),
            roundups.collect(),
            collectors.to_vec(),
            segments.collect(),
        ])
    }

    /// Finer steps around good settings: values of `max_split_size_mb` halfway to the next ones tried, and
    /// values of `max_non_split_rounding_mb`.
    pub fn around(
        &self,
        good: &CandidateSettings,
        tried: &[u64],
        sizes: &RequestSizes,
    ) -> Vec<CandidateSettings> {
        let Some(mib) = good.max_split_mib else {
            return Vec::new();
        };
        let lines = sizes.split_lines(LARGE_SEGMENT_MIB);
        let below = tried.iter().copied().filter(|&other| other < mib).max();
        let above = tried.iter().copied().filter(|&other| other > mib).min();
        let between = |low: u64, high: u64| {
            let lines: Vec<u64> = lines
                .iter()
                .copied()
                .filter(|&line| low < line && line < high)
                .collect();
            lines.get(lines.len() / 2).copied()
        };
        let finer = [
            between(below.unwrap_or(0), mib),
            between(mib, above.unwrap_or(u64::MAX)),
        ];
        let mut around: Vec<CandidateSettings> = finer
            .into_iter()
            .flatten()
            .map(|mib| CandidateSettings {
                max_split_mib: Some(mib),
                ..good.clone()
            })
            .collect();
        if good.non_split_rounding_mib.is_none() {
            around.extend([64, 256, 1024].map(|mib| CandidateSettings {
                non_split_rounding_mib: Some(mib),
                ..good.clone()
            }));
        }
        around
    }
}

/// All sensible combinations of two of these settings.
pub(super) fn pairs(good: &[CandidateSettings]) -> Vec<CandidateSettings> {
    let pairs = good
        .iter()
        .enumerate()
        .flat_map(|(at, one)| good[..at].iter().map(move |other| (one, other)));
    pairs.filter_map(|(one, other)| other.and(one)).collect()
}

/// The first of each list, then the second of each, and so on.
fn in_turns<const N: usize>(lists: [Vec<CandidateSettings>; N]) -> Vec<CandidateSettings> {
    let mut lists = lists.map(Vec::into_iter);
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

fn split_values(sizes: &RequestSizes) -> Vec<u64> {
    let lines = sizes.split_lines(LARGE_SEGMENT_MIB);
    let mut values = sizes.main_split_lines(LARGE_SEGMENT_MIB, SPLIT_LINES);
    // Powers of two, which people commonly use, up to the largest size requested.
    let largest = lines.last().copied().unwrap_or(0);
    let usual = (5..).map(|log2| 1_u64 << log2);
    values.extend(usual.take_while(|&mib| mib <= largest));
    values.sort_unstable();
    values.dedup();
    values
}

fn roundups(sizes: &RequestSizes) -> Vec<RoundupSetting> {
    let mut roundups: Vec<RoundupSetting> = [2, 4, 8, 16].map(RoundupSetting::All).to_vec();
    // Rounding small requests wastes little and gains little.
    let crowded = |count: u64| -> Vec<usize> {
        let ranges = sizes.ranges_with(count).into_iter();
        ranges.filter(|&range| range > 0).collect()
    };
    let mut lists = vec![crowded(CROWDED), crowded(4 * CROWDED)];
    lists.dedup();
    for ranges in lists.into_iter().filter(|ranges| !ranges.is_empty()) {
        roundups.extend([2, 4, 8].map(|divisions| RoundupSetting::Ranges {
            ranges: ranges.clone(),
            divisions,
        }));
    }
    roundups
}

#[cfg(test)]
mod tests;
