//! The truncation test: what is said of the last 10, 30 and 60 % of a recording must be true of the whole.
//!
//! Three recordings are part of this repository. `COALESCE_SNAPSHOTS` and `COALESCE_H200` name folders with
//! more; without them the test prints a note and checks those three.

use std::path::{Path, PathBuf};

use coalesce_advisor::diagnose::{Evidence, Subject, diagnose};
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::snapshot::coverage::Extent;
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};

use crate::elsewhere::{files, say};

/// Rules about the program rather than the allocator: their findings must hold for the complete recording.
const ABOUT_PROGRAM: [&str; 4] = ["growth", "graph", "gradients", "losses"];

/// The last `percent` of the entries. The segments at the end stay.
fn last(recording: &Recording, percent: usize) -> Recording {
    let mut part = recording.clone();
    let entries = part.entries.len();
    let lost = entries - entries * percent / 100;
    part.entries.drain(..lost);
    part.entry_stacks.drain(..lost.min(part.entry_stacks.len()));
    part.entry_pools.drain(..lost.min(part.entry_pools.len()));
    part
}

/// The peak of reserved memory in a replay under the recorded settings, and the rules with findings.
fn replayed(recording: &Recording, limit: Option<u64>) -> (u64, Vec<&'static str>) {
    let workload = RecordedWorkload::new("part", recording).unwrap();
    let conf = recording.settings().unwrap().conf;
    let evidence = Evidence::gather(Subject {
        workload: &workload,
        recording: Some(recording),
        conf: &conf,
        conditions: ReplayConditions {
            release: recording.release(),
            limit,
            addresses: recording.address_policy().unwrap_or_default(),
            ..ReplayConditions::on(ROOMY)
        },
    })
    .unwrap();
    let rules = diagnose(&evidence)
        .iter()
        .map(|finding| finding.rule)
        .collect();
    (evidence.measures.peak_reserved_bytes, rules)
}

/// Whether a replay cannot reproduce the recording: the ages of blocks are not replayed.
fn is_approximate(recording: &Recording) -> bool {
    let settings = recording.settings().unwrap().settings;
    settings.garbage_collection_threshold() > 0.0
}

fn check(file: &Path) {
    let complete = &read(file).unwrap()[0];
    let coverage = complete.coverage();
    assert_eq!(coverage.extent, Extent::Complete, "{}", file.display());
    let (_, of_complete) = replayed(complete, None);
    for percent in [10, 30, 60] {
        let part = last(complete, percent);
        let what = format!("{}, last {percent} %", file.display());
        let coverage = part.coverage();
        assert_eq!(coverage.extent, Extent::BeginningMissing, "{what}");
        let limit = part.memory_limit();
        let limits = match &limit {
            Some(found) => vec![Some(found.at_least), Some(found.below - 1)],
            None => vec![None],
        };
        let replays: Vec<_> = limits.iter().map(|&limit| replayed(&part, limit)).collect();
        let is_true = |(peak, _): &(u64, _)| *peak == coverage.peak_reserved_bytes;
        let peak = coverage.peak_reserved_bytes;
        let is_right = is_approximate(&part) || replays.iter().any(is_true);
        assert!(is_right, "{what}: {peak}, {replays:?}");
        for rule in replays.iter().flat_map(|(_, rules)| rules) {
            let is_known = of_complete.contains(rule) || !ABOUT_PROGRAM.contains(rule);
            assert!(
                is_known,
                "{what}: {rule}, but only {of_complete:?} of the complete recording"
            );
        }
        say(&format!("{what}: {peak} bytes, {:?}", replays[0].1));
    }
}

#[test]
fn the_last_entries_are_answered_as_the_whole() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/tests/h200");
    let of_repository = ["fasterrcnn", "gat_sampled", "compile_cudagraphs"];
    let mut all: Vec<PathBuf> = of_repository
        .map(|name| here.join(format!("{name}.pickle.xz")))
        .into();
    all.extend(files("COALESCE_SNAPSHOTS", ".pickle.gz"));
    if let Some(folder) = std::env::var_os("COALESCE_H200") {
        let more = Path::new(&folder)
            .read_dir()
            .unwrap()
            .map(|file| file.unwrap().path());
        all.extend(more.filter(|file| {
            file.extension()
                .is_some_and(|ext| ext == "pickle" || ext == "gz" || ext == "xz")
        }));
    }
    all.iter().for_each(|file| check(file));
}
