//! Snapshots of real programs: every block must land where it did, and what PyTorch counted must come out.
//!
//! The recordings are not part of this repository. `COALESCE_SNAPSHOTS` names their folder; without it
//! the test says so and does nothing. Each is `NAME.pickle.gz`, and `NAME.json` holds what PyTorch's
//! statistics were at the end.

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
fn every_block_lands_where_it_did() {
    for file in files("COALESCE_SNAPSHOTS", ".pickle.gz") {
        check(&file);
    }
}

fn check(file: &Path) {
    let name = file.display();
    let recording = &read(file).unwrap()[0];
    let json = file.to_str().unwrap().replace(".pickle.gz", ".json");
    let said: Value = serde_json::from_reader(File::open(json).unwrap()).unwrap();
    let said = |key: &str| said["memory_stats"][key].as_u64().unwrap();

    let verdict = verify(recording, Known::default()).unwrap();
    assert!(verdict.is_exact(), "{name}: {verdict:#?}");
    assert_eq!(
        verdict.exact as u64,
        said("allocation.all.allocated"),
        "{name}"
    );
    assert_eq!(verdict.predicted, verdict.segment_events, "{name}");
    assert_eq!(verdict.retries, said("num_alloc_retries"), "{name}");
    assert_eq!(verdict.ooms as u64, said("num_ooms"), "{name}");

    let program = RecordedWorkload::new("program", recording).unwrap();
    let demand = Demand::of(&program).unwrap();
    let requests = said("allocation.all.allocated") + said("num_ooms");
    assert_eq!(demand.allocations, requests, "{name}");
    let peak = said("requested_bytes.all.peak");
    let least = demand.lower_bound_bytes;
    if said("num_ooms") > 0 {
        assert!(least > peak, "{name}: what failed counts, too");
    } else if recording
        .entries
        .windows(2)
        .any(|two| waits(&two[0], &two[1]))
    {
        // PyTorch counts a block until its streams are done, the program until it is given back.
        assert!(least < peak, "{name}");
    } else {
        assert_eq!(least, peak, "{name}");
    }
}

/// Whether an entry is a free that is not over at once.
fn waits(entry: &TraceEntry, next: &TraceEntry) -> bool {
    entry.action == Action::FreeRequested
        && (next.action, next.addr) != (Action::FreeCompleted, entry.addr)
}
