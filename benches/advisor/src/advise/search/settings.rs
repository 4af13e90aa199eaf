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
    use super::*;

    #[test]
    fn pytorch_accepts_the_string() {
        let all = CandidateSettings {
            expandable: true,
            large_segment_mib: Some(32),
            max_split_mib: Some(64),
            non_split_rounding_mib: Some(128),
            roundup: Some(RoundupSetting::Ranges {
                ranges: vec![5, 7],
                divisions: 4,
            }),
            collector: Some(CollectorSetting {
                threshold_percent: 80,
                fraction_permille: Some(999),
            }),
            kept: "pinned_num_register_threads:4".to_owned(),
        };
        let text = all.to_string();
        assert_eq!(
            text,
            "expandable_segments:True,large_segment_size_mb:32,max_split_size_mb:64,\
             max_non_split_rounding_mb:128,roundup_power2_divisions:[16:1,32:4,128:4],\
             garbage_collection_threshold:0.8,per_process_memory_fraction:0.999,\
             pinned_num_register_threads:4"
        );
        let settings = Settings::from_conf(&text).unwrap();
        assert!(settings.is_oversize(64 << 20) && settings.expandable_segments());
        assert_eq!(
            kept_of(&text),
            "per_process_memory_fraction:0.999,pinned_num_register_threads:4"
        );
        assert_eq!(all.keys(), 7);
        assert_eq!(CandidateSettings::default().to_string(), "");
    }

    #[test]
    fn settings_strings_are_read() {
        let canonical = |conf: &str| {
            let read = CandidateSettings::read(conf, Release::DEFAULT);
            read.map(|read| read.to_string())
        };
        let conf = "max_split_size_mb:64, garbage_collection_threshold:0.8,later:1";
        assert_eq!(
            canonical(conf).unwrap(),
            "max_split_size_mb:64,garbage_collection_threshold:0.8,later:1"
        );
        for conf in [
            "",
            "expandable_segments:True,roundup_power2_divisions:4",
            "large_segment_size_mb:64,max_split_size_mb:128,max_non_split_rounding_mb:256",
        ] {
            assert_eq!(canonical(conf).unwrap(), conf);
        }
        // Not generated: a list of divisions that differ.
        assert_eq!(canonical("roundup_power2_divisions:[256:1,>:2]"), None);
        assert_eq!(canonical("max_split_size_mb:1"), None);
    }

    #[test]
    fn sensible_settings_combine() {
        let split = CandidateSettings {
            max_split_mib: Some(64),
            ..CandidateSettings::default()
        };
        let rounded = CandidateSettings {
            roundup: Some(RoundupSetting::All(4)),
            ..CandidateSettings::default()
        };
        let expandable = CandidateSettings {
            expandable: true,
            ..CandidateSettings::default()
        };
        let both = split.and(&rounded).unwrap();
        assert_eq!(
            both.to_string(),
            "max_split_size_mb:64,roundup_power2_divisions:4"
        );
        assert!(split.and(&both).is_none() && split.and(&expandable).is_none());
        assert!(expandable.and(&expandable).is_none());
        assert!(expandable.and(&rounded).is_some());
    }

    #[test]
    fn settings_that_contradict_each_other_are_invalid() {
        let both = |large_segment_mib: u64, max_split_mib: u64| CandidateSettings {
            large_segment_mib: Some(large_segment_mib),
            max_split_mib: Some(max_split_mib),
            ..CandidateSettings::default()
        };
        assert!(!both(64, 25).is_valid(Release::DEFAULT));
        assert!(both(64, 64).is_valid(Release::DEFAULT) && both(12, 25).is_valid(Release::DEFAULT));
        let unknown = CandidateSettings {
            kept: "later:1".to_owned(),
            ..both(12, 25)
        };
        assert!(unknown.is_valid(Release::DEFAULT));
    }

    #[test]
    fn one_kind_alone() {
        let none = CandidateSettings::default();
        let kinds: [CandidateSettings; 5] = [
            CandidateSettings {
                expandable: true,
                ..none.clone()
            },
            CandidateSettings {
                max_split_mib: Some(64),
                ..none.clone()
            },
            CandidateSettings {
                roundup: Some(RoundupSetting::All(4)),
                ..none.clone()
            },
            CandidateSettings {
                collector: Some(CollectorSetting {
                    threshold_percent: 80,
                    fraction_permille: None,
                }),
                ..none.clone()
            },
            CandidateSettings {
                large_segment_mib: Some(32),
                ..none.clone()
            },
        ];
        assert!(!none.is_single() && none.keys() == 0);
        for (index, settings) in kinds.iter().enumerate() {
            assert!(settings.is_single() && settings.keys() == 1, "{settings}");
            let of_kind = CandidateSettings::KINDS.map(|kind| kind(settings));
            assert_eq!(
                of_kind,
                [0, 1, 2, 3, 4].map(|kind| kind == index),
                "{settings}"
            );
        }
        let [expandable, split, rounded, collector, segments] = kinds;
        assert!(!split.and(&rounded).unwrap().is_single());
        assert!(expandable.and(&collector).is_none() && expandable.and(&split).is_none());
        assert_eq!(expandable.and(&segments).unwrap().keys(), 2);
        let rounding = CandidateSettings {
            non_split_rounding_mib: Some(64),
            ..split
        };
        assert!(!rounding.is_single() && rounding.keys() == 2);
        assert!(rounding.and(&rounding).is_none());
    }
}
