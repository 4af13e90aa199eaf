//! The parser of a settings string until 2.9, the same at the start and at run time.
//!
//! Source: PyTorch 2.9, `CUDAAllocatorConfig::parseArgs`.

mod cursor;
mod roundup;

use self::cursor::Cursor;
use super::keys::Key;
use super::numbers::{stod, stoi};
use super::parse::{MAX_REGISTER_THREADS, backend, bytes};
use super::rules::Rules;
use super::{RoundupDivisions, Settings, SettingsError};

/// The size of large segments in MiB, which the sizes must exceed.
const LARGE_SEGMENT_MIB: u64 = 20;

/// Parses a settings string. Settings before an error take effect.
pub(super) fn parse(settings: &mut Settings, conf: &str) -> Result<(), SettingsError> {
    settings.max_split_size = None;
    settings.roundup = RoundupDivisions::default();
    settings.garbage_collection_threshold = 0.0;
    conf.clone_into(&mut settings.source);
    let rules = Rules::of(settings.release);
    let mut cursor = Cursor::new(conf);
    while let Some(key) = cursor.next() {
        if !Key::named(&key).is_some_and(|key| key.is_accepted(settings.release)) {
            return Err(unknown(key));
        }
        match &*key {
            "max_split_size_mb" => settings.max_split_size = Some(size(&mut cursor, &key)?),
            "max_non_split_rounding_mb" => {
                settings.max_non_split_rounding = size(&mut cursor, &key)?;
            }
            "garbage_collection_threshold" => {
                settings.garbage_collection_threshold = threshold(&cursor.value(&key)?)?;
            }
            "roundup_power2_divisions" => {
                settings
                    .roundup
                    .parse_until_2_9(&mut cursor, rules.divisions)?;
            }
            "backend" => {
                cursor.expect(":")?;
                let name = cursor
                    .next()
                    .ok_or_else(|| malformed("Error parsing backend value"))?;
                backend(&name, || SettingsError::OtherBackend {
                    token: "config[i]",
                    line: 288,
                    names: String::new(),
                })?;
            }
            "expandable_segments" => {
                settings.expandable_segments = cursor.required_boolean("expandable_segments")?;
            }
            "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
                settings.release_lock_on_cudamalloc =
                    cursor.required_boolean("release_lock_on_cudamalloc")?;
            }
            "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                settings.pinned.use_cuda_host_register =
                    cursor.boolean("pinned_use_cuda_host_register")?;
            }
            "pinned_num_register_threads" => {
                settings.pinned.num_register_threads = register_threads(&cursor.value(&key)?)?;
            }
            "pinned_use_background_threads" => {
                settings.pinned.use_background_threads = cursor.boolean(&key)?;
            }
            "graph_capture_record_stream_reuse" => {
                settings.graph_capture_record_stream_reuse = cursor.boolean(&key)?;
            }
            _ => return Err(unknown(key)),
        }
        if cursor.peek().is_some() {
            cursor.expect(",")?;
        }
    }
    Ok(())
}

fn unknown(key: String) -> SettingsError {
    SettingsError::UnknownKey { key, parser: None }
}

fn malformed(text: impl Into<String>) -> SettingsError {
    SettingsError::Malformed(text.into())
}

fn out_of_range(text: impl Into<String>) -> SettingsError {
    SettingsError::OutOfRange(text.into())
}

/// An `int` that is converted to an unsigned number: `-1` is the largest.
fn unsigned(text: &str) -> Result<u64, SettingsError> {
    let value = stoi(text).ok_or(SettingsError::NotANumber { function: "stoi" })?;
    Ok(i64::from(value).cast_unsigned())
}

fn size(cursor: &mut Cursor, key: &str) -> Result<u64, SettingsError> {
    let mib = unsigned(&cursor.value(key)?)?;
    if mib <= LARGE_SEGMENT_MIB {
        return Err(out_of_range(format!(
            "CachingAllocator option {key} too small, must be > {LARGE_SEGMENT_MIB}"
        )));
    }
    Ok(bytes(mib))
}

fn threshold(text: &str) -> Result<f64, SettingsError> {
    let share = stod(text).ok_or(SettingsError::NotANumber { function: "stod" })?;
    if share > 0.0 && share < 1.0 {
        return Ok(share);
    }
    let wrong = if share >= 1.0 { "big" } else { "small" };
    Err(out_of_range(format!(
        "garbage_collect_threshold too {wrong}, set it 0.0~1.0"
    )))
}

fn register_threads(text: &str) -> Result<u64, SettingsError> {
    let threads = unsigned(text)?;
    let wrong = if !threads.is_power_of_two() {
        "has to be power of 2 ".to_owned()
    } else if threads > MAX_REGISTER_THREADS {
        format!("should be less than or equal to {MAX_REGISTER_THREADS}")
    } else {
        return Ok(threads);
    };
    Err(out_of_range(format!("Number of register threads {wrong}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{Release, v2};

    fn settings(release: Release, conf: &str) -> Result<Settings, String> {
        let defaults = Settings::of_release(release);
        defaults.started_with(conf).map_err(|e| e.to_string())
    }

    #[test]
    fn separators_are_checked() {
        for line in include_str!("cases/separators.txt").lines() {
            let (conf, message) = line.split_once(" => ").unwrap();
            let printed = settings(v2(9), conf).err();
            assert_eq!(printed.as_deref().unwrap_or("accepted"), message, "{conf}");
        }
    }

    #[test]
    fn only_the_variable_of_cuda_is_read() {
        let generic = |name: &str| (name == "PYTORCH_ALLOC_CONF").then(|| "foo:1".to_owned());
        let defaults = Settings::of_release(v2(9));
        assert_eq!(defaults.clone().started_in(generic), Ok(defaults));
    }
}
