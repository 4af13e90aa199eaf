//! Settings as the search varies them, and as `PYTORCH_CUDA_ALLOC_CONF` expects them.

use std::fmt;

use coalesce_alloc::release::Release;
use coalesce_alloc::settings::{Settings, written};

use crate::settings_string::{known_part, without};

/// The settings of PyTorch's allocator that affect memory. `None` leaves the default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(in crate::advise) struct CandidateSettings {
    /// `expandable_segments`
    pub expandable: bool,
    /// `large_segment_size_mb`; even, because CUDA maps pages of expandable segments in units of 2 MiB.
    pub large_segment_mib: Option<u64>,
    /// `max_split_size_mb`
    pub max_split_mib: Option<u64>,
    /// `max_non_split_rounding_mb`, which needs `max_split_size_mb`.
    pub non_split_rounding_mib: Option<u64>,
    /// `roundup_power2_divisions`
    pub roundup: Option<RoundupSetting>,
    /// `garbage_collection_threshold` with the memory limit that it needs.
    pub collector: Option<CollectorSetting>,
    /// All other current settings, unchanged.
    pub kept: String,
}

/// `roundup_power2_divisions`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::advise) enum RoundupSetting {
    /// The same divisions for all sizes.
    All(u64),
    /// Divisions for some ranges of sizes [2^k MiB, 2^(k+1) MiB), in ascending order of k. Range 0 includes
    /// all smaller sizes.
    Ranges {
        /// k of each.
        ranges: Vec<usize>,
        /// The divisions of each.
        divisions: u64,
    },
}

/// The garbage collector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::advise) struct CollectorSetting {
    /// `garbage_collection_threshold`, in percent of the limit: 1 to 99.
    pub threshold_percent: u64,
    /// `per_process_memory_fraction` in thousandths; below 1000, which would be no limit. `None` if the program
    /// has a limit already.
    pub fraction_permille: Option<u64>,
}

impl CandidateSettings {
    /// The kinds of settings: whether each is set.
    pub const KINDS: [fn(&Self) -> bool; 5] = [
        |settings| settings.expandable,
        |settings| settings.max_split_mib.is_some(),
        |settings| settings.roundup.is_some(),
        |settings| settings.collector.is_some(),
        |settings| settings.large_segment_mib.is_some(),
    ];

    /// Whether one kind is set alone.
    pub fn is_single(&self) -> bool {
        let kinds = Self::KINDS.iter().filter(|kind| kind(self));
        kinds.count() == 1 && self.non_split_rounding_mib.is_none()
    }

    /// The number of keys set.
    pub fn keys(&self) -> usize {
        let fraction = self
            .collector
            .and_then(|collector| collector.fraction_permille);
        let keys = [
            self.expandable,
            self.large_segment_mib.is_some(),
            self.max_split_mib.is_some(),
            self.non_split_rounding_mib.is_some(),
            self.roundup.is_some(),
            self.collector.is_some(),
            fraction.is_some(),
        ];
        keys.into_iter().filter(|is_set| *is_set).count()
    }

    /// The settings of a settings string, as a release reads them. `None` if the search would not generate them.
    pub fn read(conf: &str, release: Release) -> Option<Self> {
        let kept = kept_of(conf);
        let mut read = Self {
            kept,
            ..Self::default()
        };
        for (key, setting) in written(conf) {
            let value = setting
                .split_once(':')
                .map_or("", |(_, value)| value.trim());
            match key {
                "expandable_segments" => read.expandable = value == "True",
                "large_segment_size_mb" => read.large_segment_mib = value.parse().ok(),
                "max_split_size_mb" => read.max_split_mib = value.parse().ok(),
                "max_non_split_rounding_mb" => read.non_split_rounding_mib = value.parse().ok(),
                "roundup_power2_divisions" => {
                    read.roundup = value.parse().ok().map(RoundupSetting::All);
                }
                "garbage_collection_threshold" => {
                    let threshold: f64 = value.parse().ok()?;
                    read.collector = Some(CollectorSetting {
                        threshold_percent: (threshold * 100.0).round() as u64,
                        fraction_permille: None,
                    });
                }
                _ => {}
            }
        }
        let is_same = parsed(&read.to_string(), release)? == parsed(conf, release)?;
        is_same.then_some(read)
    }

    /// Whether a release accepts them. Settings that are valid alone need not be valid together: `max_split_size_mb` must
    /// not be below `large_segment_size_mb`.
    pub fn is_valid(&self, release: Release) -> bool {
        parsed(&self.to_string(), release).is_some()
    }

    /// Both settings combined. `None` if both set the same key, or if expandable segments would be combined
    /// with a limit on splitting, which gains nothing there, or with the collector, which finds nothing to
    /// collect.
    pub fn and(&self, other: &Self) -> Option<Self> {
        let both = Self {
            expandable: self.expandable || other.expandable,
            large_segment_mib: either(self.large_segment_mib, other.large_segment_mib)?,
            max_split_mib: either(self.max_split_mib, other.max_split_mib)?,
            non_split_rounding_mib: either(
                self.non_split_rounding_mib,
                other.non_split_rounding_mib,
            )?,
            roundup: either(self.roundup.clone(), other.roundup.clone())?,
            collector: either(self.collector, other.collector)?,
            kept: self.kept.clone(),
        };
        let is_same_key = self.expandable && other.expandable;
        let needs_whole_blocks = both.max_split_mib.is_some() || both.collector.is_some();
        let is_contradiction = both.expandable && needs_whole_blocks;
        (!is_same_key && !is_contradiction).then_some(both)
    }
}

/// The settings that a release reads in a string; `None` if it rejects them. Keys that it does not know are ignored.
fn parsed(conf: &str, release: Release) -> Option<Settings> {
    let known = known_part(conf, release);
    Settings::of_release(release).started_with(&known).ok()
}

/// The one that is set; `None` if both are.
fn either<T>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(_), Some(_)) => None,
        (one, other) => Some(one.or(other)),
    }
}

/// The value of `PYTORCH_CUDA_ALLOC_CONF`.
impl fmt::Display for CandidateSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys = Vec::new();
        if self.expandable {
            keys.push("expandable_segments:True".to_owned());
        }
        for (key, value) in [
            ("large_segment_size_mb", self.large_segment_mib),
            ("max_split_size_mb", self.max_split_mib),
            ("max_non_split_rounding_mb", self.non_split_rounding_mib),
        ] {
            keys.extend(value.map(|value| format!("{key}:{value}")));
        }
        if let Some(roundup) = &self.roundup {
            keys.push(format!("roundup_power2_divisions:{roundup}"));
        }
        if let Some(collector) = self.collector {
            let threshold = collector.threshold_percent as f64 / 100.0;
            keys.push(format!("garbage_collection_threshold:{threshold}"));
            keys.extend(collector.fraction_permille.map(|fraction| {
                let fraction = fraction as f64 / 1000.0;
                format!("{MEMORY_FRACTION}:{fraction}")
            }));
        }
        if !self.kept.is_empty() {
            keys.push(self.kept.clone());
        }
        out.write_str(&keys.join(","))
    }
}

/// A list begins with one division for the sizes below its first range, because its first element covers all
/// smaller sizes.
impl fmt::Display for RoundupSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(divisions) => write!(out, "{divisions}"),
            Self::Ranges { ranges, divisions } => {
                let below = ranges.first().and_then(|first| first.checked_sub(1));
                let below = below.map(|below| format!("{}:1", 1_u64 << below));
                let listed = ranges
                    .iter()
                    .map(|range| format!("{}:{divisions}", 1_u64 << range));
                let list: Vec<String> = below.into_iter().chain(listed).collect();
                write!(out, "[{}]", list.join(","))
            }
        }
    }
}

/// The keys that the search varies.
const SEARCHED: [&str; 6] = [
    "expandable_segments",
    "large_segment_size_mb",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
];
/// The key that limits memory. A current limit is intended and therefore kept.
pub(super) const MEMORY_FRACTION: &str = "per_process_memory_fraction";

/// The part of a settings string that the search does not vary.
pub(super) fn kept_of(conf: &str) -> String {
    without(conf, &SEARCHED)
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;

    /// Settings as the search writes them: a list of divisions, which it does not read, is for 32 and 128 MiB, and a limit
    /// is the collector's.
    fn settings(conf: &str) -> Option<CandidateSettings> {
        let (list, limit) = ("[16:1,32:4,128:4]", ",per_process_memory_fraction:0.999");
        let plain = conf.replace(list, "4").replace(limit, "");
        let mut read = CandidateSettings::read(&plain, Release::DEFAULT)?;
        if conf.contains(list) {
            let (ranges, divisions) = (vec![5, 7], 4);
            read.roundup = Some(RoundupSetting::Ranges { ranges, divisions });
        }
        if let Some(collector) = read.collector.as_mut().filter(|_| conf.contains(limit)) {
            collector.fraction_permille = Some(999);
        }
        Some(read)
    }

    /// What is known about settings, about two together, or what is kept of a string.
    fn shown(case: &str) -> String {
        let of = |conf: &str| settings(conf).expect("settings that the search generates");
        if let Some((one, other)) = case.split_once(" and ") {
            let both = of(one).and(&of(other));
            return both.map_or("no combination".to_owned(), |both| {
                format!("{both}, valid {}", both.is_valid(Release::DEFAULT))
            });
        }
        let Some(settings) = settings(case.trim_matches('\'')) else {
            return "not generated".to_owned();
        };
        let kinds: Vec<usize> = (0..5)
            .filter(|&kind| CandidateSettings::KINDS[kind](&settings))
            .collect();
        let valid = settings.is_valid(Release::DEFAULT);
        format!(
            "'{settings}', {} keys of kinds {kinds:?}, single {}, valid {valid}, kept '{}'",
            settings.keys(),
            settings.is_single(),
            settings.kept
        )
    }

    #[test]
    fn settings_as_the_search_varies_them() {
        cases::check("src/advise/search/cases/settings.txt", shown);
    }
}
