//! Memory histories of real programs on real GPUs, published by others: every block must land where
//! it did.
//!
//! The recordings are not part of this repository. `COALESCE_PUBLIC_TRACES` names their folder;
//! without it the test says so and does nothing.

#[path = "../elsewhere/mod.rs"]
mod elsewhere;

use coalesce_workloads::formats::snapshot::read;
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};

use self::elsewhere::{files, say};

/// A recording that no allocator has made: the fixture of a tool's own tests. Its blocks lie at odd
/// addresses and leave gaps.
const INVENTED: &str = "facebookresearch__mosaic__test_snapshots_output";

#[test]
fn every_block_lands_where_it_did() {
    for file in &files("COALESCE_PUBLIC_TRACES", ".csv.gz") {
        let name = file.file_name().unwrap().to_str().unwrap();
        let verdict = match verify(&read(file).unwrap()[0], Known::default()) {
            Err(error @ RecordingError::End(_)) if name.starts_with(INVENTED) => {
                say(&format!("{name}: {error}"));
                continue;
            }
            verdict => verdict.unwrap(),
        };
        say(&format!("{name}: {} allocations", verdict.exact));
        assert!(verdict.allocations > 0, "{name}");
        assert!(verdict.is_exact(), "{name}: {verdict:#?}");
        assert_eq!(verdict.exact, verdict.allocations, "{name}");
        assert_eq!(verdict.predicted, verdict.segment_events, "{name}");
    }
}
