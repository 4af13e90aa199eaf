//! The settings of a recording.

use coalesce_alloc::history::Action;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::{Settings, SettingsError, written};

use super::Recording;

/// A settings string, as far as one release of PyTorch knows its keys.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownSettings {
    /// The known settings.
    pub settings: Settings,
    /// The same as a settings string.
    pub conf: String,
    /// Keys that this release does not know. They are ignored.
    pub unknown: Vec<String>,
}

impl KnownSettings {
    /// Reads a settings string as a release does.
    ///
    /// # Errors
    /// If a value is invalid in that release.
    pub fn of(release: Release, conf: &str) -> Result<Self, SettingsError> {
        let mut conf = conf.to_owned();
        let mut unknown = Vec::new();
        loop {
            match Settings::of_release(release).started_with(&conf) {
                Ok(settings) => {
                    return Ok(Self {
                        settings,
                        conf,
                        unknown,
                    });
                }
                Err(SettingsError::UnknownKey { key, .. }) if !unknown.contains(&key) => {
                    conf = without(&conf, &[&key]);
                    unknown.push(key);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Recording {
    /// The settings of the recorded program. If the snapshot does not contain them, the defaults, with
    /// expandable segments if it has any.
    ///
    /// # Errors
    /// If a value is invalid in the recorded release.
    pub fn settings(&self) -> Result<KnownSettings, SettingsError> {
        self.settings_in(self.release())
    }

    /// The settings of the recorded program as a release reads them.
    ///
    /// # Errors
    /// If a value is invalid in that release.
    pub fn settings_in(&self, release: Release) -> Result<KnownSettings, SettingsError> {
        let conf = match &self.conf {
            Some(conf) => conf,
            None if self.has_expandable_segments() => "expandable_segments:True",
            None => "",
        };
        KnownSettings::of(release, conf)
    }

    fn has_expandable_segments(&self) -> bool {
        let mut entries = self.entries.iter();
        let maps = entries.any(|entry| entry.action == Action::SegmentMap);
        maps || self.segments.iter().any(|segment| segment.is_expandable)
    }
}

/// The settings string without some keys.
#[must_use]
pub fn without(conf: &str, keys: &[&str]) -> String {
    let kept: Vec<&str> = written(conf)
        .filter(|(key, _)| !key.is_empty() && !keys.contains(key))
        .map(|(_, setting)| setting.trim())
        .collect();
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::snapshot::fixture::recording;

    fn settings(conf: &str) -> Result<KnownSettings, SettingsError> {
        let recording = Recording {
            conf: Some(conf.to_owned()),
            ..Recording::default()
        };
        recording.settings()
    }

    #[test]
    fn keys_of_other_versions_are_ignored_and_reported() {
        let conf = "later:[1:2,3:4],expandable_segments:True, other:1,max_split_size_mb:100";
        let known = settings(conf).unwrap();
        assert_eq!(known.unknown, ["later", "other"]);
        assert_eq!(known.conf, "expandable_segments:True,max_split_size_mb:100");
        assert!(known.settings.expandable_segments() && known.settings.max_split_size().is_some());
        let is_refused = settings("max_split_size_mb:1").is_err();
        assert!(is_refused, "a value too small");
        assert!(settings("backend:cudaMallocAsync").is_err());
    }

    #[test]
    fn keys_are_left_out_with_their_lists() {
        let conf = " a:[1:2,>:4] , b:1,,c:2,";
        for (keys, expected) in [
            (&[][..], "a:[1:2,>:4],b:1,c:2"),
            (&["a"], "b:1,c:2"),
            (&["b"], "a:[1:2,>:4],c:2"),
            (&["c", "a", "x"], "b:1"),
            (&["a", "b", "c"], ""),
        ] {
            assert_eq!(without(conf, keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn unrecorded_settings_are_taken_from_the_segments() {
        for (text, expected) in [
            (
                "conf unknown\nalloc 1 1\nsegment_map 1 1",
                "expandable_segments:True",
            ),
            (
                "conf unknown\nsegment 1\nsegment 1 pages",
                "expandable_segments:True",
            ),
            ("conf unknown\nalloc 1 1\nsegment_alloc 1 1\nsegment 1", ""),
            ("segment_map 1 1\nsegment 1 pages", ""),
        ] {
            let conf = recording(text).settings().unwrap().conf;
            assert_eq!(conf, expected, "{text}");
        }
    }
}
