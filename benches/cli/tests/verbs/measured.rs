//! Replays of recordings from real GPUs, compared with what PyTorch reported there: `workloads/recordings`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

use coalesce_bench::measure::parallel::Jobs;
use serde_json::Value;

use super::{checkout, coalesce};

/// The columns that are compared.
const FIGURES: [&str; 5] = [
    "allocations",
    "peak_requested_bytes",
    "peak_reserved_bytes",
    "retries",
    "ooms",
];

/// Why a replay differs, as the README of the recordings explains.
const REASONS: [&str; 7] = [
    "addresses",
    "pools",
    "timing",
    "goes on",
    "compiled",
    "full device",
    "unknown",
];

fn folder() -> PathBuf {
    checkout().join("workloads/recordings/h200")
}

/// The names of all recordings.
fn recordings() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap();
    let names = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".trace.xz").map(str::to_owned));
    names.collect()
}

/// A row of `measured.csv`, by column.
struct Row(HashMap<String, String>);

fn rows() -> Vec<Row> {
    let mut reader = csv::Reader::from_path(folder().join("measured.csv")).unwrap();
    let rows = reader.deserialize().map(Result::unwrap).map(Row);
    // The driver's own pool, which a replay does not predict.
    rows.filter(|row| !row.0.values().any(|field| field == "async"))
        .collect()
}

impl Row {
    fn recording(&self) -> String {
        let names = [&*self.0["program"], &self.0["rank"]];
        names.join("_").trim_end_matches('_').to_owned()
    }

    /// The figures that PyTorch reported.
    fn measured(&self) -> [u64; 5] {
        FIGURES.map(|figure| self.0[figure].parse().unwrap())
    }

    /// The figures that are known to differ in a replay.
    fn known_to_differ(&self) -> BTreeSet<&str> {
        self.0["differs"].split_whitespace().collect()
    }

    /// The figures of a replay under the settings and the limit of the row; those of the recording itself under the
    /// recorded conditions.
    fn replayed(&self) -> [u64; 5] {
        let file = folder().join(format!("{}.trace.xz", self.recording()));
        let mut arguments = vec!["replay", file.to_str().unwrap(), "--json"];
        if self.0["what"] != "record" {
            arguments.extend(["--conf", &self.0["conf"]]);
        }
        if !self.0["limit_bytes"].is_empty() {
            arguments.extend(["--limit", &self.0["limit_bytes"]]);
        }
        let printed = coalesce(&arguments, "", &[]).success();
        let report: Value = serde_json::from_str(&printed).unwrap();
        FIGURES.map(|figure| report[figure].as_u64().unwrap())
    }

    /// What is wrong with the row, if anything: a figure that differs from the replay's without being named, or one that is
    /// named and does not differ.
    fn problem(&self) -> Option<String> {
        let (measured, replayed) = (self.measured(), self.replayed());
        let compared = FIGURES.into_iter().zip(measured).zip(replayed);
        let unequal = compared.filter(|((_, measured), replayed)| measured != replayed);
        let differ: BTreeSet<&str> = unequal.map(|((name, _), _)| name).collect();
        let fits = |[.., ooms]: [u64; 5]| ooms == 0;
        let is_true = differ == self.known_to_differ() && fits(measured) == fits(replayed);
        let row = &self.0;
        (!is_true)
            .then(|| format!("{row:?}\n{FIGURES:?}\nmeasured {measured:?}\nreplayed {replayed:?}"))
    }
}

/// Every figure is equal, but for those that `measured.csv` names as different; and these do differ. Whether a program
/// fits is always right.
#[test]
fn replays_give_what_pytorch_reported_on_a_gpu() {
    let rows = rows();
    for row in &rows {
        let reason = row.0["reason"].as_str();
        let is_known = REASONS.contains(&reason);
        assert_eq!(is_known, !row.known_to_differ().is_empty(), "'{reason}'");
    }
    let checked = Jobs::default().map(&rows, Row::problem);
    let problems: Vec<String> = checked.into_iter().flatten().collect();
    let (wrong, all) = (problems.len(), rows.len());
    assert!(
        problems.is_empty(),
        "{wrong} of {all} rows:\n{}",
        problems.join("\n\n")
    );
}

/// Every recording was measured, but for one that PyTorch told nothing about, and is described.
#[test]
fn every_recording_is_measured_and_described() {
    let recordings = recordings();
    let mut measured: BTreeSet<String> = rows().iter().map(Row::recording).collect();
    measured.insert("oom_mixtral".to_owned());
    assert_eq!(recordings, measured);
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let described: BTreeSet<String> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(recordings, described);
}
