//! Snapshots of real programs: the reader's counts must match their recorder's.
//!
//! The recordings are not part of this repository. `COALESCE_SNAPSHOTS` names their folder; without it
//! the test prints a note and does nothing. Each is `NAME.pickle.gz`, and `NAME.json` holds PyTorch's
//! final statistics.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use coalesce_alloc::history::Action;
use coalesce_alloc::snapshot::{BlockState, SegmentInfo};
use coalesce_workloads::formats::snapshot::{Frame, Recording, read};
use serde_json::Value;

use crate::elsewhere::files;

#[test]
fn snapshots_match_the_recorded_statistics() {
    for file in files("COALESCE_SNAPSHOTS", ".pickle.gz") {
        check(&file);
    }
}

fn check(file: &Path) {
    let name = file.display();
    let recordings = read(file).unwrap();
    let [recording] = &recordings[..] else {
        panic!("{name}: {} devices", recordings.len());
    };
    let json = file.to_str().unwrap().replace(".pickle.gz", ".json");
    let statistics: Value = serde_json::from_reader(File::open(json).unwrap()).unwrap();
    let recorded = |key: &str| statistics[key].as_u64().unwrap_or(0);

    assert_eq!(recording.remarks, [""; 0], "{name}");
    assert!(recording.conf.is_some(), "{name}");
    let expected = recorded("trace_entries");
    assert_eq!(recording.entries.len() as u64, expected, "{name}");
    let expected = recorded("segments");
    assert_eq!(recording.segments.len() as u64, expected, "{name}");
    let sum = |of: fn(&SegmentInfo) -> u64| -> u64 { recording.segments.iter().map(of).sum() };
    for (key, bytes) in [
        ("final_reserved_bytes", sum(SegmentInfo::total_size)),
        ("final_allocated_bytes", sum(SegmentInfo::allocated_size)),
        ("final_active_bytes", sum(SegmentInfo::active_size)),
        ("peak_reserved_bytes", peak_reserved(recording)),
    ] {
        assert_eq!(bytes, recorded(key), "{name}: {key}");
    }
    check_counts(&statistics, recording);
    check_stacks(recording);
}

/// Assumes a recording from the first allocation, as all of these are.
fn peak_reserved(recording: &Recording) -> u64 {
    let (mut reserved, mut peak) = (0, 0);
    for entry in &recording.entries {
        match entry.action {
            action if action.takes_memory() => reserved += entry.size,
            action if action.returns_memory() => reserved -= entry.size,
            _ => {}
        }
        peak = peak.max(reserved);
    }
    peak
}

fn check_counts(statistics: &Value, recording: &Recording) {
    for action in Action::ALL {
        let entries = recording.entries.iter();
        let count = entries.filter(|entry| entry.action == action).count();
        let recorded = statistics["entries_by_action"][action.name()].as_u64();
        assert_eq!(count as u64, recorded.unwrap_or(0), "{}", action.name());
    }
    for state in [
        BlockState::ActiveAllocated,
        BlockState::ActivePendingFree,
        BlockState::Inactive,
    ] {
        let blocks = recording
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks);
        let count = blocks.filter(|block| block.state == state).count();
        let recorded = statistics["blocks_by_state"][state.name()].as_u64();
        assert_eq!(count as u64, recorded.unwrap_or(0), "{}", state.name());
    }
}

/// Every stack is stored once and belongs to an entry or a block.
fn check_stacks(recording: &Recording) {
    assert_eq!(recording.entry_stacks.len(), recording.entries.len());
    assert!(recording.stacks[0].frames.is_empty());
    let mut is_used = vec![false; recording.stacks.len()];
    is_used[0] = true;
    let of_blocks = recording.block_stacks.values();
    for id in recording.entry_stacks.iter().chain(of_blocks) {
        is_used[id.0 as usize] = true;
    }
    assert!(is_used.iter().all(|used| *used));
    let distinct: HashSet<_> = recording.stacks.iter().collect();
    assert_eq!(distinct.len(), recording.stacks.len());
    let is_of_program = |frame: &Arc<Frame>| {
        frame.filename == "/app/train.py" && frame.line > 0 && !frame.name.is_empty()
    };
    let mut frames = recording.stacks.iter().flat_map(|stack| &stack.frames);
    assert!(frames.any(is_of_program));
}
