//! What settings strings set.

use super::*;
use crate::release::v2;

const MIB: u64 = 1 << 20;

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

#[test]
fn each_parse_resets_some_keys_and_keeps_others() {
    let mut settings = Settings::from_conf(
        "large_segment_size_mb:32,max_split_size_mb:100,garbage_collection_threshold:0.5,\
         roundup_power2_divisions:4,expandable_segments:True,per_process_memory_fraction:0.5",
    )
    .unwrap();
    assert_eq!(settings.max_split_size(), Some(100 * MIB));
    settings.apply("pinned_num_register_threads:4").unwrap();
    assert_eq!(settings.max_split_size, None);
    assert_eq!(settings.garbage_collection_threshold, 0.0);
    assert_eq!(settings.roundup, RoundupDivisions::default());
    assert_eq!(settings.max_non_split_rounding, 32 * MIB);
    assert_eq!(settings.large_segment_size(), 32 * MIB);
    assert!(settings.expandable_segments);
    assert_eq!(settings.per_process_memory_fraction, 0.5);
    assert_eq!(settings.pinned.num_register_threads, 4);
}

#[test]
fn until_2_10_a_parse_keeps_the_rounding_of_oversize_blocks() {
    for (release, kept) in [(6, true), (9, true), (10, true), (11, false), (15, false)] {
        let mut settings = Settings::of_release(v2(release))
            .started_with("max_non_split_rounding_mb:64")
            .unwrap();
        settings.apply("backend:native").unwrap();
        let expected = if kept { 64 * MIB } else { 20 * MIB };
        assert_eq!(settings.max_non_split_rounding, expected, "2.{release}");
    }
}

#[test]
fn settings_before_an_error_take_effect() {
    let mut settings = Settings::default();
    let error = settings
        .apply("max_split_size_mb:64,foo:1,expandable_segments:True")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Unrecognized key 'foo' in Accelerator allocator config."
    );
    assert_eq!(settings.max_split_size, Some(64 * MIB));
    assert!(!settings.expandable_segments);
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

/// The defaults of `AcceleratorAllocatorConfig.h` and `CUDAAllocatorConfig.h`.
#[test]
fn settings_that_are_not_written_have_pytorchs_defaults() {
    let settings = Settings::default();
    assert_eq!(settings.source(), "");
    assert_eq!(settings.large_segment_size(), 20 * MIB);
    assert_eq!(settings.max_split_size(), None);
    assert_eq!(settings.garbage_collection_threshold(), 0.0);
    assert_eq!(settings.per_process_memory_fraction(), 1.0);
    assert!(!settings.expandable_segments());
    assert!(!settings.graph_capture_record_stream_reuse());
    assert!(!settings.release_lock_on_cudamalloc());
    assert!(!settings.throw_on_cudamalloc_oom);
    let pinned = PinnedSettings {
        use_background_threads: false,
        use_cuda_host_register: false,
        num_register_threads: 1,
        reserve_segment_size_mb: 0,
        free_catch_all: false,
        max_round_threshold: None,
        max_cached_size: None,
    };
    assert_eq!(settings.pinned, pinned);
}

#[test]
fn each_setting_is_read_in_the_releases_that_have_it() {
    let read = |release, conf: &str| {
        Settings::of_release(v2(release))
            .started_with(conf)
            .unwrap()
    };
    for release in [9, 11, 15] {
        let conf = "garbage_collection_threshold:0.25,expandable_segments:True,\
                    release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,\
                    pinned_use_background_threads:True,pinned_use_cuda_host_register:True,\
                    pinned_num_register_threads:128";
        let settings = read(release, conf);
        assert_eq!(settings.source(), conf);
        assert_eq!(settings.garbage_collection_threshold(), 0.25);
        assert!(settings.expandable_segments());
        assert!(settings.release_lock_on_cudamalloc());
        assert!(settings.graph_capture_record_stream_reuse());
        assert!(settings.pinned.use_background_threads);
        assert!(settings.pinned.use_cuda_host_register);
        assert_eq!(settings.pinned.num_register_threads, 128);
        // The next string starts from the defaults of what it does not mention.
        let mut again = settings.clone();
        again.apply("backend:native").unwrap();
        assert_eq!(again.garbage_collection_threshold(), 0.0);
        assert_eq!(again.source(), "backend:native");
    }
    let settings = read(
        15,
        "pinned_reserve_segment_size_mb:3,throw_on_cudamalloc_oom:True,pinned_free_catch_all:True,\
         pinned_max_round_threshold_mb:7,pinned_max_cached_size_mb:9,per_process_memory_fraction:0.5",
    );
    assert_eq!(settings.pinned.reserve_segment_size_mb, 3);
    assert!(settings.throw_on_cudamalloc_oom);
    assert!(settings.pinned.free_catch_all);
    assert_eq!(settings.pinned.max_round_threshold, Some(7 * MIB));
    assert_eq!(settings.pinned.max_cached_size, Some(9 * MIB));
    assert_eq!(settings.per_process_memory_fraction(), 0.5);
}

#[test]
fn a_key_is_accepted_from_its_first_release_to_its_last() {
    for key in &keys::KEYS {
        assert_eq!(keys::Key::named(key.name), Some(key));
        assert!(key.until.is_some() || key.is_accepted(key.since));
        assert_eq!(
            key.is_accepted(v2(0)),
            key.since <= v2(0) && key.until.is_none()
        );
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
