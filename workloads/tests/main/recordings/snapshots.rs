//! Snapshots of real programs: every block must get its recorded address, and every count must match
//! PyTorch's.
//!
//! The recordings are not part of this repository. `COALESCE_SNAPSHOTS` names their folder; without it
//! the test prints a note and does nothing. Each is `NAME.pickle.gz`, and `NAME.json` holds PyTorch's
//! final statistics.

use std::fs::File;
use std::path::Path;

use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::snapshot::read;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use serde_json::Value;

use crate::elsewhere::files;

#[test]
fn every_block_gets_its_recorded_address() {
    for file in files("COALESCE_SNAPSHOTS", ".pickle.gz") {
        check(&file);
    }
}

fn check(file: &Path) {
    let name = file.display();
    let recording = &read(file).unwrap()[0];
    let json = file.to_str().unwrap().replace(".pickle.gz", ".json");
    let statistics: Value = serde_json::from_reader(File::open(json).unwrap()).unwrap();
    let recorded = |key: &str| statistics["memory_stats"][key].as_u64().unwrap();

    let verdict = verify(recording, Known::default()).unwrap();
    assert!(verdict.is_exact(), "{name}: {verdict:#?}");
    let expected = recorded("allocation.all.allocated");
    assert_eq!(verdict.exact as u64, expected, "{name}");
    assert_eq!(verdict.predicted, verdict.segment_events, "{name}");
    assert_eq!(verdict.retries, recorded("num_alloc_retries"), "{name}");
    assert_eq!(verdict.ooms as u64, recorded("num_ooms"), "{name}");

    let program = RecordedWorkload::new("program", recording).unwrap();
    let demand = Demand::of(&program).unwrap();
    let requests = recorded("allocation.all.allocated") + recorded("num_ooms");
    assert_eq!(demand.allocations, requests, "{name}");
    let peak = recorded("requested_bytes.all.peak");
    let bound = demand.lower_bound_bytes;
    if recorded("num_ooms") > 0 {
        assert!(bound > peak, "{name}: failed requests count");
    } else if recording
        .entries
        .windows(2)
        .any(|two| is_delayed_free(&two[0], &two[1]))
    {
        // PyTorch counts a block until its streams are done, the demand only until it is freed.
        assert!(bound < peak, "{name}");
    } else {
        assert_eq!(bound, peak, "{name}");
    }
}

/// Whether an entry is a free that does not complete at once.
fn is_delayed_free(entry: &TraceEntry, next: &TraceEntry) -> bool {
    entry.action == Action::FreeRequested
        && (next.action, next.addr) != (Action::FreeCompleted, entry.addr)
}
