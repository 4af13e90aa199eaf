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
    use crate::cases;
    use crate::formats::snapshot::fixture::recording;

    /// The settings, without keys that are not known, or why there are none.
    #[test]
    fn settings_of_recordings() {
        cases::check(
            "src/formats/snapshot/cases/settings.txt",
            |text| match recording(text).settings() {
                Ok(known) => {
                    let settings = &known.settings;
                    let large = settings.max_split_size();
                    let pages = settings.expandable_segments();
                    let (conf, unknown) = (known.conf, known.unknown);
                    format!("'{conf}', pages: {pages}, split: {large:?}, unknown: {unknown:?}")
                }
                Err(error) => error.to_string(),
            },
        );
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
}
