//! Memory histories of real programs on real GPUs, published by others: every block must land where
//! it did.
//!
//! The recordings are not part of this repository. `COALESCE_PUBLIC_TRACES` names their folder;
//! without it the test says so and does nothing.

use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;

use workloads::recording;
use workloads::recording::rewind::RecordingError;
use workloads::recording::verify::{Known, verify};

const FOLDER: &str = "COALESCE_PUBLIC_TRACES";

/// A recording that no allocator has made: the fixture of a tool's own tests. Its blocks lie at odd
/// addresses and leave gaps.
const INVENTED: &str = "facebookresearch__mosaic__test_snapshots_output";

#[test]
fn every_block_lands_where_it_did() {
    let mut report = stderr();
    let Some(folder) = std::env::var_os(FOLDER) else {
        writeln!(
            report,
            "SKIPPED: public traces; set {FOLDER} to their folder"
        )
        .unwrap();
        return;
    };
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(".csv.gz")))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no recording in {}", folder.display());
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let verdict = match verify(&recording::read(file).unwrap()[0], Known::default()) {
            Err(error @ RecordingError::End(_)) if name.starts_with(INVENTED) => {
                writeln!(report, "{name}: {error}").unwrap();
                continue;
            }
            verdict => verdict.unwrap(),
        };
        writeln!(report, "{name}: {} allocations", verdict.exact).unwrap();
        assert!(verdict.allocations > 0, "{name}");
        assert!(verdict.is_exact(), "{name}: {verdict:#?}");
        assert_eq!(verdict.exact, verdict.allocations, "{name}");
        assert_eq!(verdict.predicted, verdict.segment_events, "{name}");
    }
}
