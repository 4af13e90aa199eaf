//! A setting, as it is searched for and as it is written.

use std::fmt;

use coalesce_alloc::settings::written;

/// Settings of PyTorch 2.11's allocator that decide where memory goes. What is not set has its default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Conf {
    /// `expandable_segments`
    pub expandable: bool,
    /// `large_segment_size_mb`, even: CUDA gives memory for pages of an expandable segment in 2 MiB.
    pub large_segment_mib: Option<u64>,
    /// `max_split_size_mb`
    pub max_split_mib: Option<u64>,
    /// `max_non_split_rounding_mb`, which means nothing without a `max_split_size_mb`.
    pub non_split_rounding_mib: Option<u64>,
    /// `roundup_power2_divisions`
    pub roundup: Option<Roundup>,
    /// `garbage_collection_threshold` with the limit without which it means nothing.
    pub collector: Option<Collector>,
    /// Whatever else is set at present, as it is written.
    pub kept: String,
}

/// `roundup_power2_divisions`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Roundup {
    /// For all sizes.
    All(u64),
    /// For sizes of some ranges [2^k MiB, 2^(k+1) MiB) alone, k ascending; 0 is everything below, too.
    Ranges {
        /// k of each.
        ranges: Vec<usize>,
        /// Divisions of each.
        divisions: u64,
    },
}

/// The garbage collector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Collector {
    /// `garbage_collection_threshold`, in percent of the limit: 1 to 99.
    pub threshold_percent: u64,
    /// `per_process_memory_fraction`, in thousandths of the device: below 1000, for that is no limit.
    /// None if there is one at present, which is kept.
    pub fraction_permille: Option<u64>,
}

impl Conf {
    /// How many keys it takes.
    #[must_use]
    pub fn keys(&self) -> usize {
        usize::from(self.expandable)
            + usize::from(self.large_segment_mib.is_some())
            + usize::from(self.max_split_mib.is_some())
            + usize::from(self.non_split_rounding_mib.is_some())
            + usize::from(self.roundup.is_some())
            + self.collector.map_or(0, |collector| {
                1 + usize::from(collector.fraction_permille.is_some())
            })
    }

    /// Both settings together; `None` if both set the same key, or if they make no sense together: with
    /// expandable segments nothing is gained by keeping blocks whole, and the collector finds nothing to
    /// collect.
    #[must_use]
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
        let is_one_key = self.expandable && other.expandable;
        let of_whole_blocks = both.max_split_mib.is_some() || both.collector.is_some();
        let contradict = both.expandable && of_whole_blocks;
        (!is_one_key && !contradict).then_some(both)
    }
}

/// The one of two that is there; `None` if both are.
fn either<T>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(_), Some(_)) => None,
        (one, other) => Some(one.or(other)),
    }
}

/// As `PYTORCH_CUDA_ALLOC_CONF` takes it.
impl fmt::Display for Conf {
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
                format!("{LIMIT}:{fraction}")
            }));
        }
        if !self.kept.is_empty() {
            keys.push(self.kept.clone());
        }
        out.write_str(&keys.join(","))
    }
}

/// A list begins with 1 for everything below its first range: its first element covers all of that.
impl fmt::Display for Roundup {
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

/// Keys of [`Conf`].
const SEARCHED: [&str; 6] = [
    "expandable_segments",
    "large_segment_size_mb",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
];
/// The key that limits memory. Who has set it means it: it is kept.
pub const LIMIT: &str = "per_process_memory_fraction";

/// What of a string is none of the keys that are searched for, as it is written there.
#[must_use]
pub fn kept_of(conf: &str) -> String {
    let kept = written(conf).filter(|(key, _)| !key.is_empty() && !SEARCHED.contains(key));
    let kept: Vec<&str> = kept.map(|(_, setting)| setting.trim()).collect();
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::settings::Settings;

    use super::*;

    #[test]
    fn pytorch_takes_what_is_written() {
        let all = Conf {
            expandable: true,
            large_segment_mib: Some(32),
            max_split_mib: Some(64),
            non_split_rounding_mib: Some(128),
            roundup: Some(Roundup::Ranges {
                ranges: vec![5, 7],
                divisions: 4,
            }),
            collector: Some(Collector {
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
        assert_eq!(Conf::default().to_string(), "");
    }

    #[test]
    fn settings_go_together_or_do_not() {
        let split = Conf {
            max_split_mib: Some(64),
            ..Conf::default()
        };
        let rounded = Conf {
            roundup: Some(Roundup::All(4)),
            ..Conf::default()
        };
        let expandable = Conf {
            expandable: true,
            ..Conf::default()
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
}
