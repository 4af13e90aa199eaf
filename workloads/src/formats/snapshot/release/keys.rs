//! The keys that the settings strings of each release accept.

use coalesce_alloc::settings::written;

use super::{Release, Releases, two};
use crate::catalog::Unknown;

/// The first release that records a history as these snapshots contain it.
const OLDEST: Release = two(0);

/// The keys of a settings string, with the first release that accepts each, and the first later one that does not.
///
/// Source: `c10/cuda/CUDAAllocatorConfig.h` and `c10/core/AllocatorConfig.h` of the releases 2.0 to 2.15,
/// and the pull requests of pytorch/pytorch that are named behind the keys.
const KEYS: [(&str, Release, Option<Release>); 23] = [
    ("backend", two(0), None),
    ("max_split_size_mb", two(0), None),
    ("garbage_collection_threshold", two(0), None),
    ("roundup_power2_divisions", two(0), None),
    // Replaced by the list form of roundup_power2_divisions.
    (
        "roundup_bypass_threshold_mb",
        Release {
            major: 1,
            minor: 13,
        },
        Some(two(0)),
    ),
    ("expandable_segments", two(1), None),        // #96995
    ("release_lock_on_cudamalloc", two(2), None), // #108367
    ("release_lock_on_hipmalloc", two(2), None),
    ("pinned_use_cuda_host_register", two(2), None), // #110123
    ("pinned_use_hip_host_register", two(2), None),
    ("pinned_num_register_threads", two(2), None), // #110123
    ("max_non_split_rounding_mb", two(6), None),   // #136174
    ("pinned_use_background_threads", two(6), None), // #135524
    ("graph_capture_record_stream_reuse", two(9), None), // #158352
    ("per_process_memory_fraction", two(10), None), // #161035
    ("pinned_reserve_segment_size_mb", two(10), None), // #164501
    ("large_segment_size_mb", two(11), None),      // #172056
    ("throw_on_cudamalloc_oom", two(12), None),    // #179473
    ("pinned_free_catch_all", two(12), None),
    ("pinned_max_round_threshold_mb", two(13), None),
    ("pinned_max_cached_size_mb", two(13), None),
    ("expandable_segments_reserve", two(15), None), // #192269
    ("expandable_segments_reserve_by_class", two(15), None), // #192269
];

/// The first release that accepts a key, and the first later one that does not.
fn found(key: &str) -> Option<(Release, Option<Release>)> {
    let known = KEYS.iter().find(|(known, ..)| *known == key);
    known.map(|&(_, since, until)| (since, until))
}

impl Release {
    /// The first release whose settings strings accept a key, if any does.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        found(key).map(|(since, _)| since)
    }
}

impl Releases {
    /// Whether every release in the range accepts this key in a settings string. PyTorch ends a program
    /// whose settings string contains an unknown key.
    #[must_use]
    pub fn know(&self, key: &str) -> bool {
        found(key).is_some_and(|(since, until)| {
            since <= self.from.unwrap_or(OLDEST)
                && until.is_none_or(|until| self.before.is_some_and(|before| before <= until))
        })
    }

    /// The keys of a settings string that some release in the range does not accept.
    pub fn unknown_keys<'a>(&self, conf: &'a str) -> impl Iterator<Item = &'a str> + use<'_, 'a> {
        let keys = written(conf).map(|(key, _)| key);
        keys.filter(|key| !key.is_empty() && !self.know(key))
    }
}

/// What to do about a key that the reference does not know.
#[must_use]
pub fn unknown_key_hint(key: &str) -> Option<String> {
    if let Some((since, until)) = found(key) {
        let releases = until.map_or_else(
            || format!("from {since} on"),
            |until| format!("only before {until}"),
        );
        return Some(format!(
            "PyTorch has it {releases}; the reference is PyTorch {}",
            Release::REFERENCE
        ));
    }
    let keys = KEYS.map(|(key, ..)| key);
    let keys = keys.into_iter().filter(|key| Releases::REFERENCE.know(key));
    let unknown = Unknown::new(key, keys);
    let nearest = unknown.nearest()?;
    Some(format!("did you mean '{nearest}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_of_the_range_must_know_a_key() {
        let unknown = Releases::default();
        assert!(unknown.know("max_split_size_mb") && !unknown.know("expandable_segments"));
        let conf = "expandable_segments:True,max_non_split_rounding_mb:64,roundup_power2_divisions:[1:2,>:4]";
        let given = |text: &str| Releases::given(text.parse().unwrap());
        let keys: Vec<_> = given("2.5").unknown_keys(conf).map(str::to_owned).collect();
        assert_eq!(keys, ["max_non_split_rounding_mb"]);
        assert!(given("2.6").unknown_keys(conf).next().is_none());
        assert!(Releases::REFERENCE.know("large_segment_size_mb"));
        assert!(!Releases::REFERENCE.know("throw_on_cudamalloc_oom"));
        assert!(!Releases::REFERENCE.know("roundup_bypass_threshold_mb"));
    }

    #[test]
    fn unknown_keys_suggest_what_is_meant() {
        let hint = |key| unknown_key_hint(key).unwrap_or_default();
        assert_eq!(
            hint("expandable_segment"),
            "did you mean 'expandable_segments'?"
        );
        assert_eq!(hint("max_split_size"), "did you mean 'max_split_size_mb'?");
        let later = "PyTorch has it from 2.12 on; the reference is PyTorch 2.11";
        assert_eq!(hint("throw_on_cudamalloc_oom"), later);
        assert_eq!(hint("colour"), "");
    }
}
