//! How settings are read; `tests/settings` has what they set.

use super::*;
use crate::release::v2;

/// The table in the documentation has each key that changes a decision, and functions that exist.
#[test]
fn the_table_says_where_settings_are_applied() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pytorch");
    let text = include_str!("../settings.rs");
    let row_of = |key: &str| {
        let start = format!("//! | `{key}` |");
        text.lines().find_map(|line| line.strip_prefix(&*start))
    };
    let no_decision = |key: &str| {
        let others = ["backend", "roundup_bypass_threshold_mb"];
        key.starts_with("pinned_") || key.starts_with("release_lock_") || others.contains(&key)
    };
    for key in keys::KEYS.map(|key| key.name) {
        let row = row_of(key);
        assert_eq!(row.is_none(), no_decision(key), "{key}");
        for place in row
            .unwrap_or_default()
            .split('`')
            .filter(|it| it.contains(": "))
        {
            let (file, function) = place.split_once(": ").unwrap();
            let source = std::fs::read_to_string(folder.join(file)).expect(file);
            assert!(source.contains(&format!("fn {function}(")), "{place}");
        }
    }
}

#[test]
fn what_was_read_can_be_asked_for() {
    let conf = "roundup_power2_divisions:[256:1,512:2,>:8],graph_capture_record_stream_reuse:True,\
                max_split_size_mb:64";
    let settings = Settings::from_conf(conf).unwrap();
    assert_eq!(settings.source(), conf);
    assert!(settings.graph_capture_record_stream_reuse());
    assert_eq!(settings.max_split_size(), Some(64 << 20));
    // Of 256 MiB, 512 MiB and 1 GiB.
    assert_eq!(settings.roundup().divisions()[8..11], [1, 2, 8]);
    let settings = Settings::default();
    assert!(!settings.graph_capture_record_stream_reuse());
    assert_eq!(settings.max_split_size(), None);
    assert_eq!(settings.roundup().divisions(), &[0; 16]);
}

#[test]
fn settings_strings_are_split_at_top_level_commas() {
    let conf = "a:[1:2,3:4], b:1,,c,d:[[1],2],e:]1,f";
    let expected = [
        ("a", "a:[1:2,3:4]"),
        ("b", " b:1"),
        ("", ""),
        ("c", "c"),
        ("d", "d:[[1],2]"),
        ("e", "e:]1"),
        ("f", "f"),
    ];
    assert!(written(conf).eq(expected));
}

#[test]
fn only_the_first_variable_that_is_set_is_read() {
    let cuda_empty = |name: &str| match name {
        "PYTORCH_CUDA_ALLOC_CONF" => Some(String::new()),
        _ => Some("expandable_segments:True".to_owned()),
    };
    assert!(!Settings::from_env(cuda_empty).unwrap().expandable_segments);
    let generic =
        |name: &str| (name == "PYTORCH_ALLOC_CONF").then(|| "expandable_segments:True".to_owned());
    assert!(Settings::from_env(generic).unwrap().expandable_segments);
    assert_eq!(Settings::from_env(|_| None), Ok(Settings::default()));
}

/// A settings string may come from a snapshot that somebody else made.
#[test]
fn errors_show_no_control_characters() {
    for conf in ["max_split\u{1b}:1", "expandable_segments:\u{1b}"] {
        for release in [Release::DEFAULT, v2(6)] {
            let text = match Settings::of_release(release).apply(conf) {
                Ok(()) => panic!("{conf:?} is invalid in {release}"),
                Err(error) => error.to_string(),
            };
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
    }
}

#[test]
fn a_key_is_accepted_from_its_first_release_to_its_last() {
    for key in &keys::KEYS {
        assert_eq!(keys::Key::named(key.name), Some(key));
        assert!(key.until.is_some() || key.is_accepted(key.since));
        let found = key.is_accepted(v2(0));
        assert_eq!(found, key.since <= v2(0) && key.until.is_none());
    }
    let bypass = keys::Key::named("roundup_bypass_threshold_mb").unwrap();
    let old = Release {
        major: 1,
        minor: 13,
    };
    assert!(bypass.is_accepted(old) && !bypass.is_accepted(v2(0)) && !bypass.is_accepted(v2(1)));
    let fraction = keys::Key::named("per_process_memory_fraction").unwrap();
    assert!(!fraction.is_accepted(v2(9)) && fraction.is_accepted(v2(10)));
    assert_eq!(keys::Key::named("fraction"), None);
}
