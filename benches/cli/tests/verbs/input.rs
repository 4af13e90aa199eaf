//! What all verbs do with their input: versions, names, settings, releases and recordings.

use std::path::PathBuf;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::settings::Settings;
use coalesce_workloads::formats::pickle::to_writer;
use serde_json::{Value, json};

use crate::{coalesce, scratch, trace};

/// A snapshot of the reference.
fn snapshot() -> Value {
    let device = SimDevice::new(&SimConfig::default());
    let mut allocator = PyTorch::new(device, Settings::default());
    allocator.record_history(Some(HistoryOptions::default()));
    for _ in 0..3 {
        let block = allocator.malloc(3_000_000, StreamId::DEFAULT).unwrap();
        allocator.free(block).unwrap();
    }
    allocator.malloc(1000, StreamId::DEFAULT).unwrap();
    serde_json::to_value(allocator.snapshot()).unwrap()
}

fn file(name: &str, snapshot: &Value) -> PathBuf {
    let mut pickle = Vec::new();
    to_writer(snapshot, &mut pickle).unwrap();
    scratch(name, pickle)
}

#[test]
fn the_program_names_itself_and_its_version() {
    let expected = format!("coalesce {}\n", env!("CARGO_PKG_VERSION"));
    for flag in ["--version", "-V"] {
        assert_eq!(coalesce(&[flag], "", &[]).success(), expected);
    }
}

#[test]
fn an_unknown_key_suggests_the_nearest() {
    let good = &trace("example_interleaved_free");
    for verb in ["replay", "advise", "diagnose"] {
        let refused = |conf: &str, words: &[&str]| {
            coalesce(&[verb, good, "--conf", conf], "", &[]).failure(1, words);
        };
        refused(
            "expandable_segment:True",
            &["did you mean 'expandable_segments'?"],
        );
        let later = ["--torch", "2.11", "--conf", "throw_on_cudamalloc_oom:True"];
        let arguments = [&[verb, good], &later[..]].concat();
        coalesce(&arguments, "", &[]).failure(1, &["PyTorch has it from 2.12 on"]);
    }
}

/// PyTorch answers with an assertion of its source that asks to report a bug.
#[test]
fn invalid_settings_are_no_bug_of_pytorch() {
    let good = &trace("example_interleaved_free");
    for verb in ["replay", "advise", "diagnose"] {
        for (conf, words) in [
            ("max_split_size_mb", "Index out of bounds"),
            ("roundup_power2_divisions:[1:2", "Expected closing bracket"),
            ("backend:cudaMallocAsync", "cudaMallocAsync != native"),
            ("max_split_size_mb:x", "stoull (a value is not a number)"),
        ] {
            let ended = coalesce(&[verb, good, "--conf", conf], "", &[]);
            for phrase in ["report a bug", "ASSERT"] {
                assert!(!ended.err.contains(phrase), "{verb}: {}", ended.err);
            }
            ended.failure(1, &[words]);
        }
    }
}

#[test]
fn an_unknown_key_of_a_policy_suggests_the_nearest() {
    let replay = ["replay", "churn", "--policy", "bfc", "--conf", "growht:1"];
    coalesce(&replay, "", &[]).failure(1, &["did you mean 'growth'?"]);
}

#[test]
fn settings_are_those_of_the_named_release() {
    let good = &trace("example_interleaved_free");
    let replay = |release: &str, conf: &str| {
        let arguments = ["replay", good, "--torch", release, "--conf", conf];
        coalesce(&arguments, "", &[])
    };
    replay("2.13", "throw_on_cudamalloc_oom:True").success();
    let unknown = ["Unrecognized key 'large_segment_size_mb'", "from 2.11 on"];
    replay("2.10", "large_segment_size_mb:64").failure(1, &unknown);
}

#[test]
fn unknown_keys_of_a_snapshot_are_named_and_kept() {
    let mut later = snapshot();
    let conf = "max_split_size_mb:64,of_a_later_release:1";
    later["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = json!(conf);
    let path = file("later.pickle", &later);
    let path = path.to_str().unwrap();
    for arguments in [
        &["verify", path][..],
        &["replay", path],
        &["diagnose", path],
        &["advise", path, "--time-limit", "0"],
    ] {
        let text = coalesce(arguments, "", &[]).success();
        for words in ["of_a_later_release", "not simulated"] {
            assert!(text.contains(words), "{arguments:?}: {text}");
        }
    }
    let text = coalesce(&["advise", path, "--time-limit", "0"], "", &[]).success();
    assert!(text.contains(conf), "{text}");
}

#[test]
fn the_release_is_shown_and_can_be_given() {
    let path = file("release.pickle", &snapshot());
    let path = path.to_str().unwrap();
    let text = coalesce(&["replay", path, "--torch", "2.8"], "", &[]).success();
    assert!(text.contains("release: PyTorch 2.8, as given;"), "{text}");
    coalesce(&["replay", path, "--torch", "eight"], "", &[])
        .failure(2, &["expected for example 2.8"]);
}

#[test]
fn recordings_without_some_actions_are_refused() {
    let mut skipping = snapshot();
    let entries = skipping["device_traces"][0].as_array_mut().unwrap();
    entries.retain(|entry| entry["action"] != "free_completed");
    let path = file("skipping.pickle", &skipping);
    let path = path.to_str().unwrap();
    let words = &[
        "leaves out all entries free_completed",
        "record without skip_actions",
    ];
    for verb in ["replay", "advise", "diagnose"] {
        coalesce(&[verb, path], "", &[]).failure(1, words);
    }
    let ended = coalesce(&["verify", path], "", &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        words.iter().all(|words| ended.out.contains(words)),
        "{}",
        ended.out
    );
}
