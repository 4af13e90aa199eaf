//! The settings that a recording was made under.

use coalesce_alloc::history::Action;
use coalesce_alloc::settings::{Settings, SettingsError, written};

use super::Recording;

/// Settings as far as PyTorch 2.11 knows them.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownSettings {
    /// All that is known.
    pub settings: Settings,
    /// Keys that stand in the string and were left out: of earlier versions, or of later ones.
    pub unknown: Vec<String>,
}

impl Recording {
    /// The settings it was made under. Where the snapshot does not tell, they are the defaults, with
    /// expandable segments if there are any.
    ///
    /// # Errors
    /// If a value is none of PyTorch 2.11's.
    pub fn settings(&self) -> Result<KnownSettings, SettingsError> {
        let mut conf = match &self.conf {
            Some(conf) => conf.clone(),
            None if self.has_expandable_segments() => "expandable_segments:True".to_owned(),
            None => String::new(),
        };
        let mut unknown = Vec::new();
        loop {
            match Settings::from_conf(&conf) {
                Ok(settings) => return Ok(KnownSettings { settings, unknown }),
                Err(SettingsError::UnknownKey { key, .. }) if !unknown.contains(&key) => {
                    conf = without(&conf, &key);
                    unknown.push(key);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn has_expandable_segments(&self) -> bool {
        let mut entries = self.entries.iter();
        let maps = entries.any(|entry| entry.action == Action::SegmentMap);
        maps || self.segments.iter().any(|segment| segment.is_expandable)
    }
}

/// The settings without those of one key.
fn without(conf: &str, key: &str) -> String {
    let kept = written(conf).filter(|&(other, _)| other != key);
    let kept: Vec<&str> = kept.map(|(_, setting)| setting).collect();
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(conf: &str) -> Result<KnownSettings, SettingsError> {
        let recording = Recording {
            conf: Some(conf.to_owned()),
            ..Recording::default()
        };
        recording.settings()
    }

    #[test]
    fn keys_of_other_versions_are_left_out_and_told() {
        let conf = "later:[1:2,3:4],expandable_segments:True, other:1,max_split_size_mb:100";
        let known = settings(conf).unwrap();
        assert_eq!(known.unknown, ["later", "other"]);
        assert!(known.settings.expandable_segments() && known.settings.max_split_size().is_some());
        assert!(
            settings("max_split_size_mb:1").is_err(),
            "a value too small"
        );
        assert!(settings("backend:cudaMallocAsync").is_err());
    }
}
