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
    let found = told(&recording);
    assert_eq!(found, "PyTorch 2.10 or 2.11, from the snapshot's keys");
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
    let expected = "PyTorch 2.10, from the line numbers in the snapshot's stacks";
    assert_eq!(told(&recording), expected);
    recording.stacks = vec![called(1)];
    assert_eq!(recording.releases().range(), "PyTorch 2.10 or 2.11");
}

/// What is said of a range, which releases are tried of it, or what a claim leaves of the releases 2.6 to 2.9.
#[test]
fn ranges_of_releases() {
    use ReleaseEvidence::{Assumed, Given, Keys, Stacks, Unknown};
    cases::check("src/formats/snapshot/cases/release-ranges.txt", |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let minor = |at: usize| words[at].parse().ok();
        let (from, before) = (minor(1), minor(2));
        match words[0] {
            "tried" => {
                let tried = range(from, before, Keys).reproduced().into_iter();
                tried.map(|it| format!(" {it}")).collect()
            }
            "narrowed" => range(Some(6), Some(10), Keys)
                .narrowed(from.map(v2), before.map(v2), Stacks)
                .to_string(),
            evidence => {
                let all = [Unknown, Keys, Stacks, Given, Assumed];
                let evidence = all.into_iter().find(|it| format!("{it:?}") == evidence);
                range(from, before, evidence.unwrap()).to_string()
            }
        }
    });
}

#[test]
fn named_releases() {
    let recording = |releases| Recording {
        written_by: releases,
        ..Recording::default()
    };
    assert_eq!(recording(Releases::default()).release(), v2(11));
    assert_eq!(recording(Releases::since(v2(12))).release(), v2(15));
    let named = Releases::named(v2(9));
    let told = [Releases::REFERENCE, Releases::given(v2(9)), named].map(|it| it.to_string());
    let expected = [
        "PyTorch 2.15, the release of the reference",
        "PyTorch 2.9, as given",
        "PyTorch 2.9, from the snapshot's keys",
    ];
    assert_eq!(told, expected);
    let contained = [8, 9, 10].map(|minor| named.contains(v2(minor)));
    assert_eq!(contained, [false, true, false]);
    let open = Releases::since(v2(6)).narrowed(None, None, ReleaseEvidence::Unknown);
    assert_eq!(open, Releases::since(v2(6)));
}
