//! `coalesce verify`.

use std::path::PathBuf;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::release::two;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockState, Snapshot};
use coalesce_workloads::formats::pickle::write;
use serde_json::Value;

use super::{coalesce, scratch};

/// The snapshot of a small program.
pub fn snapshot(conf: &str) -> Snapshot {
    let device = SimDevice::new(&SimConfig::default());
    let settings = Settings::of_release(two(11)).started_with(conf).unwrap();
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

pub fn file(name: &str, snapshot: &Snapshot) -> PathBuf {
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
            file,
            "0",
            settings,
            "2.10-2.11",
            "cold",
            "4/4",
            "2/2",
            "0",
            "0",
            "equal",
            "exact",
        ]
    };
    assert_eq!(rows[0][..3], ["snapshot", "device", "settings"]);
    assert_eq!(rows[1], row("default.pickle", "default"));
    assert_eq!(rows[2], row("expandable.pickle", conf));
}

/// Free blocks of one size are taken in another order from 2.13 on if addresses go down.
#[test]
fn the_release_decides_about_the_verdict() {
    let device = SimDevice::new(&SimConfig {
        address_policy: AddressPolicy::Down,
        ..SimConfig::default()
    });
    let mut allocator = PyTorch::new(device, Settings::of_release(two(13)));
    allocator.record_history(Some(HistoryOptions::default()));
    let mut malloc = || allocator.malloc(20 << 20, StreamId::DEFAULT).unwrap();
    let both = [malloc(), malloc()];
    for addr in both {
        allocator.free(addr).unwrap();
    }
    allocator.malloc(20 << 20, StreamId::DEFAULT).unwrap();
    let path = file("ties.pickle", &allocator.snapshot());
    let path = path.to_str().unwrap();
    let releases = |arguments: &[&str], code: i32| {
        let ended = coalesce(&[&["verify", path, "--json"], arguments].concat(), "", &[]);
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        let json: Value = serde_json::from_str(&ended.out).unwrap();
        json[0]["releases"].clone()
    };
    let alike = serde_json::json!(["2.13", "2.14", "2.15"]);
    assert_eq!(releases(&[], 0), alike);
    let given = releases(&["--torch", "2.14"], 0);
    assert_eq!(given, serde_json::json!(["2.14"]));
    let given = releases(&["--torch", "2.11"], 1);
    assert_eq!(given, serde_json::json!([]));
}

#[test]
fn json_has_the_verdict_and_the_counts_of_each_device() {
    let path = file("json.pickle", &snapshot(""));
    let path = path.to_str().unwrap();
    let ended = coalesce(&["verify", path, "none.pickle", "--json"], "", &[]);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    let [exact, unreadable] = &json.as_array().unwrap()[..] else {
        panic!("{json}");
    };
    assert_eq!(
        (&exact["snapshot"], &exact["device"]),
        (&path.into(), &0.into())
    );
    assert_eq!(
        (&exact["settings"], &exact["verdict"]),
        (&"".into(), &"exact".into())
    );
    assert_eq!(exact["releases"], serde_json::json!(["2.10", "2.11"]));
    let counts = &exact["counts"];
    assert_eq!(
        (&counts["exact"], &counts["allocations"]),
        (&4.into(), &4.into())
    );
    assert_eq!(counts["is_end_equal"], true);
    assert_eq!(unreadable["verdict"], "unreadable");
    assert!(unreadable["device"].is_null() && unreadable["counts"].is_null());
    assert!(
        unreadable["remarks"][0]
            .as_str()
            .unwrap()
            .contains("No such file")
    );
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
fn invalid_arguments_are_rejected_with_a_reason() {
    let refused = |arguments: &[&str], words: &[&str]| {
        coalesce(&[&["verify"], arguments].concat(), "", &[]).failure(2, words);
    };
    refused(&[], &["<SNAPSHOTS>"]);
    refused(&["a", "--fraction", "0.5"], &["--capacity"]);
    refused(
        &["a", "--capacity", "1GiB", "--fraction", "2"],
        &["'2'", "0.5"],
    );
}

/// Verifies files, expects an exit status and returns the rows of the table and the whole text.
fn rows(files: &[&PathBuf], status: i32) -> (Vec<String>, String) {
    let files = files.iter().map(|file| file.to_str().unwrap());
    let arguments: Vec<&str> = ["verify"].into_iter().chain(files.clone()).collect();
    let ended = coalesce(&arguments, "", &[]);
    assert_eq!(ended.code, Some(status), "{}{}", ended.out, ended.err);
    let rows = ended.out.lines().skip(1).take(files.count());
    (rows.map(str::to_owned).collect(), ended.out.clone())
}

#[test]
fn an_unreadable_file_does_not_keep_others_from_being_verified() {
    let missing = PathBuf::from("none.pickle");
    let other = scratch("no.pickle", "op,id,bytes,stream,tag\n");
    let good = file("after_unreadable.pickle", &snapshot(""));
    let (rows, text) = rows(&[&missing, &other, &good], 2);
    for (row, (name, verdict)) in rows.iter().zip([
        ("none.pickle", "unreadable"),
        ("no.pickle", "unreadable"),
        ("after_unreadable.pickle", "exact"),
    ]) {
        assert!(row.starts_with(name) && row.ends_with(verdict), "{row}");
    }
    assert!(text.contains("No such file"), "{text}");
}

#[test]
fn recordings_without_allocations_are_not_verified() {
    let mut empty = snapshot("");
    empty.device_traces = vec![Vec::new()];
    let without_history = file("without_history.pickle", &empty);
    empty.segments = Vec::new();
    let without_device = file("without_device.pickle", &empty);
    let exact = file("before_nothing.pickle", &snapshot(""));
    for (nothing, reason) in [
        (&without_history, "_record_memory_history()"),
        (&without_device, "no memory of any device"),
    ] {
        let (rows, text) = rows(&[&exact, nothing], 2);
        assert!(rows[0].ends_with("exact"), "{text}");
        assert!(rows[1].ends_with("nothing to verify"), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn a_difference_at_the_end_is_described() {
    let mut wrong = snapshot("");
    let mut blocks = wrong
        .segments
        .iter_mut()
        .flat_map(|segment| &mut segment.blocks);
    let block = blocks.find(|block| block.is_active()).unwrap();
    // No entry of the history frees the block.
    block.state = BlockState::ActivePendingFree;
    let path = file("end.pickle", &wrong);
    let (rows, text) = rows(&[&path], 1);
    assert!(rows[0].ends_with("different"), "{text}");
    for words in [
        "at the end: the replay ends with a block of",
        "in use instead of",
        "waiting for a stream",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}
