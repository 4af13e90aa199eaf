//! The line of a recording in the public score, `results/verified.csv`.
//!
//! It has nothing of the program: no names, paths, stacks, settings, addresses or sizes.

use coalesce_alloc::bytes;
use coalesce_bench::sweep::entry::digest;
use coalesce_workloads::formats::source::Source;

use super::VerifiedDevice;

/// The columns. `memory` is what the device has, if the recording says so; `sha256` are the first 16 digits, by which one file is
/// counted once.
pub const COLUMNS: [&str; 11] = [
    "origin",
    "releases",
    "memory",
    "events",
    "allocations",
    "exact",
    "segments",
    "predicted",
    "verdict",
    "difference",
    "sha256",
];

/// The origin of a file that only its owner has.
const NOT_PUBLISHED: &str = "not published";

/// The lines of a file, below the names of the columns.
pub fn lines(source: &Source, devices: &[VerifiedDevice]) -> String {
    let sha256 = source.read().map_or(String::new(), |bytes| digest(&bytes));
    let line = |device: &VerifiedDevice| {
        let counts = device.counts.clone().unwrap_or_default();
        let difference = counts
            .difference
            .map_or("", |difference| difference.kind.name());
        let memory = device
            .memory
            .map_or_else(|| "unknown".to_owned(), bytes::amount);
        let cells = [
            NOT_PUBLISHED.to_owned(),
            device.release_range(),
            memory,
            device.events.to_string(),
            counts.allocations.to_string(),
            counts.exact.to_string(),
            counts.segment_events.to_string(),
            counts.predicted.to_string(),
            device.verdict.to_owned(),
            difference.to_owned(),
            sha256.clone(),
        ];
        cells.join(",") + "\n"
    };
    devices.iter().map(line).collect()
}
