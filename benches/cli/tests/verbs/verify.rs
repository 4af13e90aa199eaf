//! `coalesce verify`.

use std::path::PathBuf;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_workloads::formats::pickle::write;

use super::{coalesce, scratch};

/// The snapshot of a small program.
fn snapshot(conf: &str) -> Snapshot {
    let device = SimDevice::new(&SimConfig::default());
    let settings = Settings::from_conf(conf).unwrap();
    let mut allocator = PyTorch::new(device, settings);
    allocator.record_history(Some(HistoryOptions::default()));
    let malloc = |bytes| move |a: &mut PyTorch<_>| a.malloc(bytes, StreamId::DEFAULT);
    let first = malloc(3_000_000)(&mut allocator).unwrap();
    malloc(2_000_000)(&mut allocator).unwrap();
    allocator.free(first).unwrap();
    malloc(1000)(&mut allocator).unwrap();
    malloc(2000)(&mut allocator).unwrap();
    allocator.snapshot()
}

fn file(name: &str, snapshot: &Snapshot) -> PathBuf {
    let mut pickle = Vec::new();
    write::to_writer(snapshot, &mut pickle).unwrap();
    scratch(name, pickle)
}

#[test]
fn snapshots_of_the_reference_are_reproduced_exactly() {
    let conf = "expandable_segments:True";
    let default = file("default.pickle", &snapshot(""));
    let expandable = file("expandable.pickle", &snapshot(conf));
    let files = [default.to_str().unwrap(), expandable.to_str().unwrap()];
    let text = coalesce(&[&["verify"], &files[..]].concat(), "", &[]).success();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |file, settings| {
        vec![
            file, "0", settings, "cold", "4/4", "2/2", "0", "0", "equal", "exact",
        ]
    };
    assert_eq!(rows[0][..3], ["snapshot", "device", "settings"]);
    assert_eq!(rows[1], row("default.pickle", "default"));
    assert_eq!(rows[2], row("expandable.pickle", conf));
}

#[test]
fn a_moved_block_is_reported_with_its_neighbours() {
    let mut wrong = snapshot("");
    let entries = &mut wrong.device_traces[0];
    let last = entries.len() - 1;
    let (one, other) = (entries[last - 1].addr, entries[last].addr);
    (entries[last - 1].size, entries[last].size) = (2000, 1000);
    // The larger block is allocated first and placed second.
    (entries[last - 1].addr, entries[last].addr) = (other, one);
    let path = file("moved.pickle", &wrong);
    let ended = coalesce(&["verify", path.to_str().unwrap()], "", &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for words in [
        "2/4",
        "different",
        "2000 bytes are at 0x20001400000 instead of 0x20001400400",
        "the same call took from the device",
        "recorded",
        "replayed",
    ] {
        assert!(ended.out.contains(words), "no '{words}' in: {}", ended.out);
    }
}

#[test]
fn an_impossible_recording_is_reported() {
    let mut wrong = snapshot("");
    wrong.device_traces[0][1].addr.0 += 512;
    let path = file("impossible.pickle", &wrong);
    let ended = coalesce(&["verify", path.to_str().unwrap()], "", &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for words in ["impossible", "- entry ", "no block in use begins there"] {
        assert!(ended.out.contains(words), "no '{words}' in: {}", ended.out);
    }
}

#[test]
fn invalid_snapshots_are_rejected_with_a_reason() {
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        coalesce(&[&["verify"], arguments].concat(), "", &[]).failure(code, words);
    };
    refused(&[], 2, &["<SNAPSHOTS>"]);
    refused(&["none.pickle"], 1, &["none.pickle", "No such file"]);
    refused(&["a", "--fraction", "0.5"], 2, &["--capacity"]);
    refused(
        &["a", "--capacity", "1", "--fraction", "2"],
        2,
        &["'2'", "0.5"],
    );
    let other = scratch("no.pickle", "op,id,bytes,stream,tag\n");
    refused(&[other.to_str().unwrap()], 1, &["no.pickle"]);
}
