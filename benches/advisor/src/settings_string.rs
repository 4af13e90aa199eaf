//! Settings strings, the values of `PYTORCH_CUDA_ALLOC_CONF`: changed in one key, and shown to people.

pub use coalesce_workloads::formats::snapshot::settings::without;

use coalesce_alloc::release::Release;
use coalesce_workloads::formats::snapshot::settings::KnownSettings;

/// The settings string with a key set to a value.
pub fn with(conf: &str, key: &str, value: &str) -> String {
    let setting = format!("{key}:{value}");
    match without(conf, &[key]) {
        others if others.is_empty() => setting,
        others => format!("{others},{setting}"),
    }
}

/// The settings string without the keys that a release does not know. A string that is invalid in another way
/// stays as it is.
pub fn known_part(conf: &str, release: Release) -> String {
    let known = KnownSettings::of(release, conf);
    known.map_or_else(|_| conf.to_owned(), |known| known.conf)
}

/// The keys that a release does not know.
pub fn unknown_keys(conf: &str, release: Release) -> Vec<String> {
    let known = KnownSettings::of(release, conf);
    known.map_or_else(|_| Vec::new(), |known| known.unknown)
}

/// The settings in a table.
pub fn label(conf: &str) -> &str {
    match conf {
        "" => "(defaults)",
        conf => conf,
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::v2;

    use super::*;

    #[test]
    fn one_key_changes() {
        let conf =
            "max_split_size_mb:64, roundup_power2_divisions:[256:1,>:2],expandable_segments:True";
        let found = without(conf, &["roundup_power2_divisions"]);
        assert_eq!(found, "max_split_size_mb:64,expandable_segments:True");
        assert_eq!(
            with(conf, "max_split_size_mb", "128"),
            "roundup_power2_divisions:[256:1,>:2],expandable_segments:True,max_split_size_mb:128"
        );
        let expandable = "expandable_segments:True";
        assert_eq!(with("", "expandable_segments", "True"), expandable);
        assert_eq!(without(expandable, &["expandable_segments"]), "");
    }

    #[test]
    fn keys_of_later_releases_are_set_apart() {
        let conf = "later:[1:2,3:4],expandable_segments:True,other:1";
        let release = Release::DEFAULT;
        assert_eq!(known_part(conf, release), "expandable_segments:True");
        assert_eq!(unknown_keys(conf, release), ["later", "other"]);
        let too_small = "max_split_size_mb:1";
        assert_eq!(known_part(too_small, release), too_small);
        assert!(unknown_keys("max_split_size_mb:64", release).is_empty());
        let rejecting = "throw_on_cudamalloc_oom:True";
        assert!(unknown_keys(rejecting, v2(12)).is_empty());
        assert_eq!(unknown_keys(rejecting, v2(11)), ["throw_on_cudamalloc_oom"]);
    }
}
