use serde_json::Value;

use super::*;
use crate::cases;
use crate::formats::pickle::{Pickle, to_writer};
use crate::formats::snapshot::Stack;
use crate::formats::snapshot::fixture::stack;

/// The releases 2.`from` and later, before 2.`before`.
fn range(from: Option<u16>, before: Option<u16>, evidence: ReleaseEvidence) -> Releases {
    Releases {
        from: from.map(v2),
        before: before.map(v2),
        evidence,
        is_rocm: false,
    }
}

fn of(snapshot: &Value) -> Releases {
    let mut bytes = Vec::new();
    to_writer(snapshot, &mut bytes).unwrap();
    Releases::of_keys(Pickle::read(bytes).unwrap().root())
}

#[test]
fn keys_bound_the_release() {
    cases::check("src/formats/snapshot/cases/releases.txt", |text| {
        of(&serde_json::from_str(text).unwrap()).range()
    });
}

#[test]
fn settings_and_stacks_bound_the_release() {
    let mut recording = Recording {
        written_by: range(Some(10), Some(12), ReleaseEvidence::Keys),
        ..Recording::default()
    };
    let told = |recording: &Recording| recording.releases().to_string();
    assert_eq!(
        told(&recording),
        "PyTorch 2.10 or 2.11, from the snapshot's keys"
    );
    assert!(!recording.releases().know("large_segment_size_mb"));
    recording.conf = Some("large_segment_size_mb:32".to_owned());
    assert_eq!(recording.releases().range(), "PyTorch 2.11");
    assert!(recording.releases().know("large_segment_size_mb"));
    recording.conf = None;
    let called = |line: u64| {
        stack(&format!(
            "_call_impl @ /env/site-packages/torch/nn/modules/module.py:{line}"
        ))
    };
    recording.stacks = vec![Stack::default(), called(1844), called(1787)];
    assert_eq!(
        told(&recording),
        "PyTorch 2.10, from the line numbers in the snapshot's stacks"
    );
    recording.stacks = vec![called(1)];
    assert_eq!(recording.releases().range(), "PyTorch 2.10 or 2.11");
}

#[test]
fn of_the_releases_that_decide_alike_the_newest_is_tried() {
    let tried = |from: Option<u16>, before: Option<u16>| {
        let range = range(from, before, ReleaseEvidence::Keys);
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
    assert_eq!(recording(Releases::default()).release(), v2(11));
    assert_eq!(recording(Releases::since(v2(12))).release(), v2(15));
}

#[test]
fn a_range_is_told_with_its_evidence() {
    let told = |from, before, evidence| range(from, before, evidence).to_string();
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
    assert_eq!(Releases::given(v2(9)).to_string(), "PyTorch 2.9, as given");
    let named = Releases::named(v2(9));
    assert_eq!(named.to_string(), "PyTorch 2.9, from the snapshot's keys");
    assert_eq!(
        [8, 9, 10].map(|minor| named.contains(v2(minor))),
        [false, true, false]
    );
}

#[test]
fn a_claim_narrows_a_range_unless_nothing_is_left() {
    let keys = range(Some(6), Some(10), ReleaseEvidence::Keys);
    let narrowed = |from: Option<u16>, before: Option<u16>| {
        let evidence = ReleaseEvidence::Stacks;
        keys.narrowed(from.map(v2), before.map(v2), evidence)
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
    let open = Releases::since(v2(6)).narrowed(None, None, ReleaseEvidence::Unknown);
    assert_eq!(open, Releases::since(v2(6)));
}
