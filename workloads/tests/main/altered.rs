//! What is read of altered files, and what is found in altered recordings: fingerprints of thousands of outcomes.
//!
//! A fingerprint that differs says that some outcome differs. If that is intended, write the new one here.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::history::Action;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::op::{Answer, Op, Workload};

use crate::common::Fingerprint;

/// The small files in a folder of the tests, by name.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| {
            let extension = path.extension().and_then(OsStr::to_str);
            !["py", "gz", "zst"].contains(&extension.unwrap())
        })
        .collect();
    files.sort();
    files
}

/// The text of an error, unless it is of the crate that reads JSON.
fn text(error: impl Display) -> String {
    match error.to_string() {
        text if text.contains(" column ") => "refused\n".to_owned(),
        text => text + "\n",
    }
}

/// All operations, or those up to the error with its text.
fn add_operations(outcomes: &mut Fingerprint, workload: &dyn Workload) {
    let ended = workload.emit(&mut |op: Op<'_>| {
        outcomes.add(&format!("{op:?}\n"));
        Ok(match op {
            Op::Malloc { id, .. } if id % 7 == 6 => Answer::OutOfMemory,
            _ => Answer::Done,
        })
    });
    if let Err(error) = ended {
        outcomes.add(&text(error));
    }
}

fn add_file(outcomes: &mut Fingerprint, bytes: Vec<u8>) {
    match open(Source::Memory("altered".into(), bytes.into())) {
        Ok(FileContent::Workload(workload)) => add_operations(outcomes, workload.as_ref()),
        Ok(FileContent::Devices(sections)) => {
            for (index, device) in sections.devices().iter().enumerate() {
                outcomes.add(&format!("{device}: "));
                match sections.open(index) {
                    Ok(workload) => add_operations(outcomes, workload.as_ref()),
                    Err(error) => outcomes.add(&text(error)),
                }
            }
        }
        Ok(FileContent::Profile(_)) => {}
        Ok(FileContent::Snapshot(recordings)) => {
            for recording in recordings {
                outcomes.add(&format!(
                    "{:?} {:?}\n",
                    recording.entries, recording.segments
                ));
                outcomes.add(&format!("{:?} {:?}\n", recording.conf, recording.remarks));
            }
        }
        Err(error) => outcomes.add(&text(error)),
    }
}

/// Alters a file behind its first line.
fn altered(original: &[u8], rng: &mut Rng) -> Vec<u8> {
    let first = original.iter().position(|&byte| byte == b'\n');
    let start = first.map_or(0, |end| end as u64 + 1);
    let mut bytes = original.to_owned();
    for _ in 0..rng.between(1, 2) {
        let len = bytes.len() as u64;
        let at = rng.between(start.min(len - 1), len - 1) as usize;
        match rng.below(5) {
            0 => _ = bytes.remove(at),
            1 => bytes[at] = rng.below(256) as u8,
            2 => bytes[at] = *b"0129,;-#x\n".get(rng.below(10) as usize).unwrap(),
            3 => bytes.insert(at, b'0' + rng.below(10) as u8),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

fn read_altered(folder: &str, times: u64) -> String {
    let mut outcomes = Fingerprint::new();
    let mut rng = Rng::new(1);
    for file in files(folder) {
        let original = fs::read(file).unwrap();
        add_file(&mut outcomes, original.clone());
        for _ in 0..times {
            add_file(&mut outcomes, altered(&original, &mut rng));
        }
    }
    outcomes.text()
}

#[test]
fn altered_traces_are_read_as_recorded() {
    assert_eq!(
        read_altered("fuzz/examples/trace", 2_000),
        "0b8043bc0e56f1d0"
    );
}

#[test]
fn altered_binary_traces_are_read_as_recorded() {
    assert_eq!(
        read_altered("fuzz/examples/binary", 2_000),
        "8c66ac4c8b77a858"
    );
}

#[test]
fn altered_logs_and_instances_are_read_as_recorded() {
    assert_eq!(read_altered("fuzz/examples/rmm", 2_000), "156aa64bc6f1b0c5");
    assert_eq!(
        read_altered("fuzz/examples/minimalloc", 500),
        "a8d58cea7e5ab95b"
    );
}

#[test]
fn altered_snapshots_are_read_as_recorded() {
    assert_eq!(read_altered("fixtures", 600), "c93f9b1596b75435");
}

/// Alters some entries or segments.
pub fn alter(recording: &mut Recording, rng: &mut Rng) {
    const ACTIONS: [Action; 7] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::Oom,
        Action::Snapshot,
    ];
    let (entries, segments) = (&mut recording.entries, &mut recording.segments);
    let (at, other) = (
        rng.below(entries.len() as u64) as usize,
        rng.below(entries.len() as u64) as usize,
    );
    let segment = rng.below(segments.len() as u64) as usize;
    match rng.below(10) {
        0 => entries[at].size += 512,
        1 => entries[at].size = entries[other].size,
        2 => entries[at].addr = entries[other].addr,
        3 => entries[at].addr.0 += 512,
        4 => entries[at].action = ACTIONS[rng.below(7) as usize],
        5 => entries[at].stream = StreamId(entries[at].stream.0 ^ 1),
        6 => entries.swap(at, other),
        7 if segment < segments.len() => _ = segments.remove(segment),
        8 => recording.conf = Some("max_split_size_mb:32".to_owned()),
        // The recording begins later.
        _ => {
            let later = at / 2;
            entries.drain(..later);
            recording
                .entry_stacks
                .drain(..later.min(recording.entry_stacks.len()));
            recording
                .entry_pools
                .drain(..later.min(recording.entry_pools.len()));
        }
    }
}

fn add_recording(outcomes: &mut Fingerprint, recording: &Recording) {
    add_recording_as(outcomes, recording, Known::default());
}

/// What a verification finds in a recording, and the program made of it.
pub fn add_recording_as(outcomes: &mut Fingerprint, recording: &Recording, known: Known) {
    match verify(recording, known) {
        Ok(found) => {
            let difference = found.difference.as_ref().map(ToString::to_string);
            outcomes.add(&format!("{found:?} {difference:?}\n"));
        }
        Err(error) => outcomes.add(&text(error)),
    }
    match RecordedWorkload::new("altered", recording) {
        Ok(workload) => add_operations(outcomes, &workload),
        Err(error) => outcomes.add(&text(error)),
    }
}

fn verify_altered(folder: &str, times: u64) -> String {
    let mut outcomes = Fingerprint::new();
    let mut rng = Rng::new(1);
    for file in files(folder) {
        for original in read(file).unwrap() {
            add_recording(&mut outcomes, &original);
            for _ in 0..times {
                let mut recording = original.clone();
                for _ in 0..rng.between(1, 2) {
                    if !recording.entries.is_empty() {
                        alter(&mut recording, &mut rng);
                    }
                }
                add_recording(&mut outcomes, &recording);
            }
        }
    }
    outcomes.text()
}

#[test]
fn altered_recordings_differ_as_recorded() {
    assert_eq!(verify_altered("fixtures", 200), "fc0f3c918ddf45ba");
}

#[test]
fn altered_recordings_with_private_pools_differ_as_recorded() {
    assert_eq!(verify_altered("pools", 20), "71fc8b676e79a9e3");
}
