use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::formats::pickle::{Pickle, to_writer};
use crate::formats::snapshot::{Frame, Stack};

fn of(snapshot: &Value) -> Releases {
    let mut bytes = Vec::new();
    to_writer(snapshot, &mut bytes).unwrap();
    Releases::of_keys(Pickle::read(bytes).unwrap().root())
}

/// A snapshot with these keys in its settings and in its only entry.
fn snapshot(settings: &[&str], entry: &[&str]) -> Value {
    let dict = |keys: &[&str]| {
        keys.iter()
            .map(|key| ((*key).to_owned(), json!(0)))
            .collect()
    };
    let (settings, entry): (Value, Value) =
        (Value::Object(dict(settings)), Value::Object(dict(entry)));
    json!({
        "segments": [{"is_expandable": false, "segment_pool_id": [0, 0], "blocks": [{"address": 1}]}],
        "device_traces": [[], [entry]],
        "allocator_settings": settings,
        "external_annotations": [],
    })
}

#[test]
fn keys_bound_the_release() {
    let reuse = "graph_capture_record_stream_reuse";
    let entry = ["time_us", "compile_context", "user_metadata", "pool_id"];
    for (snapshot, range) in [
        (snapshot(&[], &entry[..1]), "PyTorch 2.5 to 2.7"),
        (snapshot(&[], &entry[..2]), "PyTorch 2.8"),
        (snapshot(&[reuse], &entry[..2]), "PyTorch 2.9"),
        (snapshot(&[reuse], &entry[..3]), "PyTorch 2.10 or 2.11"),
        (snapshot(&[reuse], &entry), "PyTorch 2.12"),
        (
            snapshot(&[reuse, "max_round_threshold"], &entry),
            "PyTorch 2.13 or later",
        ),
        // A tool removed what it did not need.
        (snapshot(&[], &entry), "PyTorch 2.12 or later"),
        (
            json!({"segments": [], "device_traces": []}),
            "PyTorch 2.2 or earlier",
        ),
        (
            json!([{"is_expandable": false, "blocks": []}]),
            "PyTorch 2.1 or later",
        ),
        (json!({"segments": []}), "an unknown release of PyTorch"),
    ] {
        assert_eq!(of(&snapshot).range(), range, "{snapshot}");
    }
}

#[test]
fn settings_and_stacks_bound_the_release() {
    let written_by = of(&snapshot(
        &["graph_capture_record_stream_reuse"],
        &["time_us", "compile_context", "user_metadata"],
    ));
    let mut recording = Recording {
        written_by,
        ..Recording::default()
    };
    assert_eq!(
        recording.releases().to_string(),
        "PyTorch 2.10 or 2.11, from the snapshot's keys"
    );
    assert!(!recording.releases().know("large_segment_size_mb"));
    recording.conf = Some("large_segment_size_mb:32".to_owned());
    assert_eq!(recording.releases().range(), "PyTorch 2.11");
    assert!(recording.releases().know("large_segment_size_mb"));
    recording.conf = None;
    let frame = |line| Frame {
        name: "_call_impl".to_owned(),
        filename: "/env/site-packages/torch/nn/modules/module.py".to_owned(),
        line,
    };
    let stack = |line| Stack {
        frames: vec![Arc::new(frame(line))],
    };
    recording.stacks = vec![Stack::default(), stack(1844), stack(1787)];
    assert_eq!(
        recording.releases().to_string(),
        "PyTorch 2.10, from the line numbers in the snapshot's stacks"
    );
    recording.stacks = vec![stack(1)];
    assert_eq!(recording.releases().range(), "PyTorch 2.10 or 2.11");
}

#[test]
fn of_the_releases_that_decide_alike_the_newest_is_tried() {
    let tried = |from: Option<u16>, before: Option<u16>| {
        let range = Releases {
            from: from.map(two),
            before: before.map(two),
            evidence: ReleaseEvidence::Keys,
        };
        let tried = range.reproduced().into_iter().map(|one| one.minor);
        tried.collect::<Vec<_>>()
    };
    // The common one comes first.
    assert_eq!(tried(None, None), [11, 15, 14, 12, 10, 9]);
    assert_eq!(tried(Some(12), None), [15, 14, 12]);
    assert_eq!(tried(Some(7), Some(9)), [8]);
    assert_eq!(tried(None, Some(11)), [10, 9]);
    assert_eq!(tried(Some(11), Some(12)), [11]);
    // The nearest, if none is reproduced.
    assert_eq!(tried(None, Some(3)), [6]);
    assert_eq!(tried(Some(2), Some(5)), [6]);
    assert_eq!(tried(Some(40), None), [15]);
    let recording = |releases| Recording {
        written_by: releases,
        ..Recording::default()
    };
    assert_eq!(recording(Releases::default()).release(), two(11));
    assert_eq!(recording(Releases::since(two(12))).release(), two(15));
}

#[test]
fn a_range_is_told_with_its_evidence() {
    let told = |from: Option<u16>, before: Option<u16>, evidence| {
        let range = Releases {
            from: from.map(two),
            before: before.map(two),
            evidence,
        };
        range.to_string()
    };
    use ReleaseEvidence::{Assumed, Given, Keys, Stacks, Unknown};
    for (text, expected) in [
        (told(None, None, Unknown), "an unknown release of PyTorch"),
        (
            told(Some(6), None, Keys),
            "PyTorch 2.6 or later, from the snapshot's keys",
        ),
        (
            told(None, Some(6), Keys),
            "PyTorch 2.5 or earlier, from the snapshot's keys",
        ),
        (told(Some(6), Some(7), Given), "PyTorch 2.6, as given"),
        (
            told(Some(6), Some(8), Stacks),
            "PyTorch 2.6 or 2.7, from the line numbers in the snapshot's stacks",
        ),
        (
            told(Some(6), Some(9), Assumed),
            "PyTorch 2.6 to 2.8, the release of the reference",
        ),
    ] {
        assert_eq!(text, expected);
    }
    assert_eq!(
        Releases::REFERENCE.to_string(),
        "PyTorch 2.15, the release of the reference"
    );
    assert_eq!(Releases::given(two(9)).to_string(), "PyTorch 2.9, as given");
    let named = Releases::named(two(9));
    assert_eq!(named.to_string(), "PyTorch 2.9, from the snapshot's keys");
    assert_eq!(
        [8, 9, 10].map(|minor| named.contains(two(minor))),
        [false, true, false]
    );
}

#[test]
fn a_claim_narrows_a_range_unless_nothing_is_left() {
    let range = |from: Option<u16>, before: Option<u16>, evidence| Releases {
        from: from.map(two),
        before: before.map(two),
        evidence,
    };
    let keys = range(Some(6), Some(10), ReleaseEvidence::Keys);
    let narrowed = |from: Option<u16>, before: Option<u16>| {
        let evidence = ReleaseEvidence::Stacks;
        keys.narrowed(from.map(two), before.map(two), evidence)
    };
    let stacks = |from, before| range(Some(from), Some(before), ReleaseEvidence::Stacks);
    assert_eq!(narrowed(Some(7), Some(9)), stacks(7, 9));
    assert_eq!(narrowed(Some(5), Some(12)), stacks(6, 10));
    assert_eq!(narrowed(Some(9), None), stacks(9, 10));
    assert_eq!(narrowed(None, Some(7)), stacks(6, 7));
    assert_eq!(
        [narrowed(Some(10), None), narrowed(None, Some(6))],
        [keys; 2]
    );
    let open = Releases::since(two(6)).narrowed(None, None, ReleaseEvidence::Unknown);
    assert_eq!(open, Releases::since(two(6)));
}

/// Only the first entry, segment and block are looked at.
#[test]
fn the_first_of_each_kind_of_dict_counts() {
    let entry = |key: &str| json!({(key): 0});
    let traces = |traces: Value| json!({"segments": [], "device_traces": traces, "external_annotations": []});
    let range = |value: &Value| of(value).range();
    assert_eq!(
        range(&traces(json!([[], [entry("pool_id"), entry("x")]]))),
        "PyTorch 2.12 or later"
    );
    assert_eq!(
        range(&traces(json!([[entry("x")], [entry("pool_id")]]))),
        "PyTorch 2.5 or later"
    );
    assert_eq!(
        range(&traces(json!([[entry("x"), entry("pool_id")]]))),
        "PyTorch 2.5 or later"
    );
    assert_eq!(range(&traces(json!([[]]))), "PyTorch 2.5 or later");
    assert_eq!(
        range(&traces(json!([3, [entry("pool_id")]]))),
        "PyTorch 2.12 or later"
    );
    let list = |segments: Value| range(&segments);
    let with_address = json!({"blocks": [{"address": 1}, {}]});
    let without = json!({"blocks": [{}, {"address": 1}]});
    assert_eq!(list(json!([with_address, without])), "PyTorch 2.1 or later");
    assert_eq!(
        list(json!([without, with_address])),
        "PyTorch 2.0 or earlier"
    );
    assert_eq!(list(json!([])), "an unknown release of PyTorch");
    assert_eq!(
        list(json!([{"segment_pool_id": 1}])),
        "PyTorch 2.1 or later"
    );
    let optional = |key: &str| {
        let mut snapshot = traces(json!([[]]));
        snapshot[key] = json!([]);
        range(&snapshot)
    };
    assert_eq!(optional("host_traces"), "PyTorch 2.14 or later");
    assert_eq!(optional("host_segments"), "PyTorch 2.14 or later");
    assert_eq!(optional("others"), "PyTorch 2.5 or later");
    let settings = json!({"segments": [], "device_traces": [], "allocator_settings": {}});
    assert_eq!(range(&settings), "PyTorch 2.3 or 2.4");
}
