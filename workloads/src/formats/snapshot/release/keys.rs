//! The keys that the settings strings of each release accept.

use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::keys::{KEYS, Key};
use coalesce_alloc::settings::written;

use super::{ROCM_EXPANDABLE, Releases};
use crate::catalog::Unknown;

/// The first release that records a history as these snapshots contain it.
const OLDEST: Release = v2(0);

impl Releases {
    /// Whether every release in the range accepts this key in a settings string, and the build has what it sets. PyTorch ends
    /// a program whose settings string contains an unknown key.
    #[must_use]
    pub fn know(&self, key: &str) -> bool {
        let lacks_expandable = self.is_rocm && self.from.unwrap_or(OLDEST) < ROCM_EXPANDABLE;
        if key == "expandable_segments" && lacks_expandable {
            return false;
        }
        Key::named(key).is_some_and(|key| {
            let is_gone = |until| self.before.is_none_or(|before| until < before);
            key.is_accepted(self.from.unwrap_or(OLDEST)) && !key.until.is_some_and(is_gone)
        })
    }

    /// The keys of a settings string that some release in the range does not accept.
    pub fn unknown_keys<'a>(&self, conf: &'a str) -> impl Iterator<Item = &'a str> + use<'_, 'a> {
        let keys = written(conf).map(|(key, _)| key);
        keys.filter(|key| !key.is_empty() && !self.know(key))
    }
}

/// What to do about a key that a release does not know.
#[must_use]
pub fn unknown_key_hint(key: &str) -> Option<String> {
    if let Some(Key { since, until, .. }) = Key::named(key) {
        let releases = until.map_or_else(
            || format!("from {since} on"),
            |until| format!("only before {until}"),
        );
        return Some(format!(
            "PyTorch has it {releases}; --torch names a release"
        ));
    }
    let keys = KEYS
        .iter()
        .map(|key| key.name)
        .filter(|key| Releases::REFERENCE.know(key));
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
        let rocm = |text: &str| Releases {
            is_rocm: true,
            ..given(text)
        };
        assert!(
            !rocm("2.11").know("expandable_segments") && rocm("2.12").know("expandable_segments")
        );
        assert!(rocm("2.11").know("max_split_size_mb"));
        assert!(Releases::REFERENCE.know("large_segment_size_mb"));
        assert!(!given("2.11").know("throw_on_cudamalloc_oom"));
        assert!(!Releases::REFERENCE.know("roundup_bypass_threshold_mb"));
    }

    #[test]
    fn a_key_that_is_gone_at_the_end_of_the_range_is_not_known() {
        let gone = KEYS.iter().find_map(|key| Some((key, key.until?)));
        let (key, until) = gone.unwrap();
        let range = |before| Releases {
            from: Some(key.since),
            before,
            ..Releases::default()
        };
        assert!(range(Some(until)).know(key.name));
        assert!(!range(None).know(key.name));
        let later = v2(until.minor + 1);
        assert!(!range(Some(later)).know(key.name));
    }

    #[test]
    fn unknown_keys_suggest_what_is_meant() {
        let hint = |key| unknown_key_hint(key).unwrap_or_default();
        let found = hint("expandable_segment");
        assert_eq!(found, "did you mean 'expandable_segments'?");
        assert_eq!(hint("max_split_size"), "did you mean 'max_split_size_mb'?");
        let later = "PyTorch has it from 2.12 on; --torch names a release";
        assert_eq!(hint("throw_on_cudamalloc_oom"), later);
        assert_eq!(hint("colour"), "");
    }
}
