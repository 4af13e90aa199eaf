//! Snapshots without the beginning of the program, or without any history.

use serde_json::{Value, json};

use crate::{coalesce, scratch};

const BASE: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

/// A snapshot at whose beginning 60 MiB were reserved, in three segments, and 8 MiB in use. With a history it
/// then requests 16 MiB, which a cached segment serves, and 30 MiB, which take a fourth segment.
fn snapshot(name: &str, has_history: bool) -> String {
    let segment = |index: u64, mib: u64, used: &[u64]| {
        let address = BASE + index * 64 * MIB;
        let mut at = address;
        let mut block = |mib: u64, state: &str| {
            let block = json!({
                "address": at, "size": mib * MIB, "requested_size": mib * MIB, "state": state, "frames": [],
            });
            at += mib * MIB;
            block
        };
        let mut blocks: Vec<Value> = used
            .iter()
            .map(|&mib| block(mib, "active_allocated"))
            .collect();
        let rest = mib - used.iter().sum::<u64>();
        if rest > 0 {
            blocks.push(block(rest, "inactive"));
        }
        json!({
            "device": 0, "address": address, "total_size": mib * MIB, "stream": 0, "segment_type": "large",
            "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": blocks,
        })
    };
    let entry = |action: &str, addr: u64, mib: u64| {
        json!({
            "action": action, "addr": addr, "size": mib * MIB, "stream": 0, "time_us": 1, "frames": [],
        })
    };
    let mut segments = vec![
        segment(0, 20, &[8]),
        segment(1, 20, &[]),
        segment(2, 20, &[]),
    ];
    let mut entries = Vec::new();
    if has_history {
        segments[1] = segment(1, 20, &[16]);
        segments.push(segment(3, 30, &[30]));
        let (second, fourth) = (BASE + 64 * MIB, BASE + 192 * MIB);
        entries = vec![
            entry("alloc", second, 16),
            entry("segment_alloc", fourth, 30),
            entry("alloc", fourth, 30),
        ];
    }
    let snapshot = json!({
        "segments": segments, "device_traces": [entries], "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
        },
    });
    let path = scratch(name, snapshot.to_string());
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_missing_beginning_is_reported_first_with_the_recorded_figures() {
    let path = snapshot("warm.json", true);
    let beginning = "The beginning of the program is not recorded: 60.0 MiB was already reserved, 8.0 MiB of it \
                     in use.";
    let replayed = coalesce(&["replay", &path], "", &[]).success();
    assert!(replayed.starts_with(beginning), "{replayed}");
    let reserved = replayed
        .lines()
        .find(|line| line.starts_with("peak reserved"));
    assert!(reserved.unwrap().contains("90.0 MiB"), "{replayed}");
    assert!(!replayed.contains("lower bounds"), "{replayed}");
    for arguments in [
        &["replay", &path, "--conf", "expandable_segments:True"],
        &["replay", &path, "--policy", "cuda_async"],
    ] {
        let other = coalesce(arguments, "", &[]).success();
        assert!(
            other.starts_with(beginning) && other.contains("lower bounds"),
            "{other}"
        );
    }
    for verb in ["diagnose", "advise"] {
        let text = coalesce(&[verb, &path], "", &[]).success();
        let lines: Vec<&str> = text.split_whitespace().collect();
        assert!(lines.join(" ").starts_with(beginning), "{text}");
    }
    let json = coalesce(&["replay", &path, "--json"], "", &[]).success();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["coverage"]["extent"], "beginning_missing");
    assert_eq!(
        json["coverage"]["peak_reserved_bytes"],
        json["peak_reserved_bytes"]
    );
}

#[test]
fn without_a_history_the_memory_at_the_end_is_shown_and_the_recipe() {
    let path = snapshot("cold.json", false);
    let words = ["no history", "_record_memory_history", "_dump_snapshot"];
    coalesce(&["advise", &path], "", &[]).failure(1, &words);
    for verb in ["replay", "diagnose"] {
        let ended = coalesce(&[verb, &path], "", &[]);
        assert_eq!(ended.code, Some(1));
        assert!(
            words.iter().all(|word| ended.err.contains(word)),
            "{}",
            ended.err
        );
        let row = ended.out.lines().find(|line| line.starts_with("large"));
        let row: Vec<&str> = row.unwrap().split_whitespace().collect();
        let expected = ["large", "3", "60.0", "MiB", "8.0", "MiB", "52.0", "MiB"];
        assert_eq!(row, expected, "{}", ended.out);
    }
}
