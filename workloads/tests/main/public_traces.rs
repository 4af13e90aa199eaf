//! Published memory histories of real programs on real GPUs: every block must get its recorded address.
//!
//! The recordings are not part of this repository. `COALESCE_PUBLIC_TRACES` names their folder;
//! without it the test prints a note and does nothing.

use coalesce_workloads::formats::snapshot::read;
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};

use crate::elsewhere::{files, say};

/// Not a recording of an allocator but a fixture of a tool's own tests: its blocks have odd addresses
/// and leave gaps.
const SYNTHETIC: &str = "facebookresearch__mosaic__test_snapshots_output";

#[test]
fn every_block_gets_its_recorded_address() {
    for file in &files("COALESCE_PUBLIC_TRACES", ".csv.gz") {
        let name = file.file_name().unwrap().to_str().unwrap();
        let verdict = match verify(&read(file).unwrap()[0], Known::default()) {
            Err(error @ RecordingError::End(_)) if name.starts_with(SYNTHETIC) => {
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
