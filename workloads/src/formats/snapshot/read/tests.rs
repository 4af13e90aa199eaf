use std::fs;
use std::path::PathBuf;

use coalesce_alloc::history::Action;
use serde_json::Value;

use super::*;
use crate::cases;
use crate::formats::pickle::to_writer;
use crate::formats::snapshot::fixture::told;

/// A file beside the cases.
fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/formats/snapshot/cases"
    ))
    .join(name)
}

fn fixture(name: &str) -> Vec<Recording> {
    read(path("../../../../tests/fixtures").join(name)).unwrap()
}

/// Reads a snapshot as a pickle.
fn read_value(snapshot: &Value) -> Result<Vec<Recording>, String> {
    let mut pickle = Vec::new();
    to_writer(snapshot, &mut pickle).unwrap();
    let source = Source::Memory("s.pickle".into(), pickle.into());
    read(source).map_err(|error| error.to_string())
}

fn whole() -> Value {
    serde_json::from_slice(&fs::read(path("whole.json")).unwrap()).unwrap()
}

#[test]
fn every_value_becomes_what_it_means() {
    cases::check("src/formats/snapshot/cases/read.txt", |text| {
        let recordings = match text {
            "whole.json" => read_value(&whole()).unwrap(),
            file if file.ends_with(".pickle") => read(path(file)).unwrap(),
            json => read_value(&serde_json::from_str(json).unwrap()).unwrap(),
        };
        if recordings.is_empty() {
            return "no recording".to_owned();
        }
        recordings.iter().map(told).collect()
    });
}

/// The value at a path: names of keys and indices.
fn at<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.')
        .fold(value, |value, step| match step.parse::<usize>() {
            Ok(index) => value.get_mut(index).unwrap(),
            Err(_) => &mut value[step],
        })
}

#[test]
fn a_value_of_a_wrong_type_is_named() {
    cases::check("src/formats/snapshot/cases/wrong-values.txt", |case| {
        let (path, value) = case.split_once(' ').unwrap();
        let mut wrong = whole();
        *at(&mut wrong, path) = serde_json::from_str(value).unwrap();
        let error = read_value(&wrong).unwrap_err();
        let (place, reason) = error.split_once(": ").unwrap();
        assert!(place.starts_with("s.pickle, byte "), "{place}");
        reason.to_owned()
    });
}

#[test]
fn all_pickle_protocols_are_equal() {
    let expected = fixture("protocol-4.pickle");
    assert_eq!(fixture("protocol-2.pickle"), expected);
    assert_eq!(fixture("protocol-5.pickle"), expected);
}

/// PyTorch has two writers. The second snapshot has an entry for the first snapshot.
#[test]
fn python_and_cpp_snapshots_are_equal() {
    let mut cpp = fixture("torch-cpp.pickle");
    let last = cpp[0].entries.pop();
    assert_eq!(last.map(|entry| entry.action), Some(Action::Snapshot));
    cpp[0].entry_stacks.pop();
    assert_eq!(cpp, fixture("torch-python.pickle"));
}
