//! Replays of recordings from real GPUs, compared with what PyTorch reported there: `workloads/recordings`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

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
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".trace.xz").map(str::to_owned));
    names.collect()
}

/// A row of `measured.csv`.
struct Row {
    recording: String,
    what: String,
    conf: String,
    limit: String,
    /// The values of [`FIGURES`] that PyTorch reported.
    figures: [u64; 5],
    /// The figures that differ in a replay, and why.
    differs: BTreeSet<String>,
    reason: String,
}

fn rows() -> Vec<Row> {
    let mut reader = csv::Reader::from_path(folder().join("measured.csv")).unwrap();
    let columns = reader.headers().unwrap().clone();
    let row = |row: csv::StringRecord| {
        let column = |name: &str| {
            let index = columns.iter().position(|column| column == name);
            row[index.unwrap()].to_owned()
        };
        let (program, rank) = (column("program"), column("rank"));
        Row {
            recording: match rank.is_empty() {
                true => program,
                false => format!("{program}_{rank}"),
            },
            what: column("what"),
            conf: column("conf"),
            limit: column("limit_bytes"),
            figures: FIGURES.map(|figure| column(figure).parse().unwrap()),
            differs: column("differs")
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            reason: column("reason"),
        }
    };
    let records = reader.records().map(Result::unwrap);
    // The driver's own pool, which a replay does not predict.
    let is_ours = |record: &csv::StringRecord| !record.iter().any(|field| field == "async");
    records.filter(is_ours).map(row).collect()
}

impl Row {
    /// The figures of a replay under the settings and the limit of the row; those of the recording itself under the
    /// recorded conditions.
    fn replayed(&self) -> [u64; 5] {
        let file = folder().join(format!("{}.trace.xz", self.recording));
        let mut arguments = vec!["replay", file.to_str().unwrap(), "--json"];
        if self.what != "record" {
            arguments.extend(["--conf", &self.conf]);
        }
        if !self.limit.is_empty() {
            arguments.extend(["--limit", &self.limit]);
        }
        let report = coalesce(&arguments, "", &[]).success();
        let report: Value = serde_json::from_str(&report).unwrap();
        FIGURES.map(|figure| report[figure].as_u64().unwrap())
    }

    /// What is wrong with the row, if anything: a figure that differs from the replay's without being named, or one that is
    /// named and does not differ.
    fn problem(&self) -> Option<String> {
        let replayed = self.replayed();
        let compared = FIGURES.iter().zip(self.figures).zip(replayed);
        let differ = compared.filter(|((_, measured), replayed)| measured != replayed);
        let differ: BTreeSet<String> = differ.map(|((name, _), _)| (*name).to_owned()).collect();
        let fits = |[.., ooms]: [u64; 5]| ooms == 0;
        let is_true = differ == self.differs && fits(self.figures) == fits(replayed);
        let Self {
            recording,
            what,
            conf,
            limit,
            figures,
            differs,
            ..
        } = self;
        (!is_true).then(|| {
            format!(
                "{recording}, {what}, '{conf}', limit '{limit}': {FIGURES:?}\nmeasured {figures:?}\nreplayed \
                 {replayed:?}\nknown to differ: {differs:?}"
            )
        })
    }
}

/// Every figure is equal, but for those that `measured.csv` names as different; and these do differ. Whether a program
/// fits is always right.
#[test]
fn replays_give_what_pytorch_reported_on_a_gpu() {
    let rows = rows();
    for row in &rows {
        let is_known = REASONS.contains(&row.reason.as_str());
        assert_eq!(is_known, !row.differs.is_empty(), "'{}'", row.reason);
    }
    let queue = Mutex::new(rows.iter());
    let problems = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(row) = queue.lock().unwrap().next() else {
                        return;
                    };
                    if let Some(problem) = row.problem() {
                        problems.lock().unwrap().push(problem);
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
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
    let mut measured: BTreeSet<String> = rows().into_iter().map(|row| row.recording).collect();
    measured.insert("oom_mixtral".to_owned());
    assert_eq!(recordings, measured);
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let described = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let described: BTreeSet<String> = described.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(recordings, described);
}
