//! Whether programs fit under a limit, compared with measurements on an H200 (`tests/h200`).

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{coalesce, scratch};

/// A measurement under a limit.
struct Measured {
    program: String,
    conf: String,
    limit: u64,
    fits: bool,
    /// Whether the limit is 1 % above the edge.
    has_room: bool,
}

fn measured() -> Vec<Measured> {
    let mut reader = csv::Reader::from_path(folder().join("measured.csv")).unwrap();
    let rows = reader.records().map(Result::unwrap);
    let rows = rows.filter(|row| &row[2] == "limit").map(|row| Measured {
        program: row[0].to_owned(),
        conf: row[3].to_owned(),
        limit: row[4].parse().unwrap(),
        fits: &row[9] == "0",
        has_room: false,
    });
    let mut rows: Vec<Measured> = rows.collect();
    let limits: Vec<(String, String, u64)> = rows
        .iter()
        .map(|row| (row.program.clone(), row.conf.clone(), row.limit))
        .collect();
    for row in &mut rows {
        let same = limits
            .iter()
            .filter(|one| one.0 == row.program && one.1 == row.conf);
        row.has_room = same.map(|one| one.2).max() == Some(row.limit);
    }
    rows
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h200")
}

/// The recording of a program in a folder.
fn recording(folder: &Path, program: &str) -> Option<PathBuf> {
    let names = ["pickle.gz", "pickle.xz", "pickle"].map(|ending| format!("{program}.{ending}"));
    let mut paths = names.into_iter().map(|name| folder.join(name));
    paths.find(|path| path.exists())
}

/// Compares all measurements of a program with replays.
fn compare(program: &str, recording: &Path) {
    for row in measured().iter().filter(|row| row.program == program) {
        let limit = row.limit.to_string();
        let arguments = [
            "replay",
            recording.to_str().unwrap(),
            "--conf",
            &row.conf,
            "--limit",
            &limit,
            "--json",
        ];
        let out = coalesce(&arguments, "", &[]).success();
        let replayed: Value = serde_json::from_str(&out).unwrap();
        let fits = replayed["ooms"] == 0;
        assert!(
            !row.has_room || row.fits,
            "1 % above the edge everything fits"
        );
        assert_eq!(fits, row.fits, "{program}, '{}', {limit} bytes", row.conf);
    }
}

/// Compares all measurements of a program without an edge with replays, in every figure.
fn compare_all(program: &str) {
    let recording = recording(&folder(), program).unwrap();
    let mut reader = csv::Reader::from_path(folder().join("measured.csv")).unwrap();
    let columns = reader.headers().unwrap().clone();
    let rows = reader.records().map(Result::unwrap);
    let rows: Vec<csv::StringRecord> = rows.filter(|row| &row[0] == program).collect();
    assert!(!rows.is_empty());
    for row in &rows {
        let column = |name: &str| {
            let index = columns.iter().position(|column| column == name);
            &row[index.unwrap()]
        };
        let mut arguments = vec!["replay", recording.to_str().unwrap(), "--json"];
        arguments.extend(["--conf", column("conf")]);
        let limit = column("limit_bytes");
        if !limit.is_empty() {
            arguments.extend(["--limit", limit]);
        }
        let replayed = coalesce(&arguments, "", &[]).success();
        let replayed: Value = serde_json::from_str(&replayed).unwrap();
        for figure in [
            "allocations",
            "peak_requested_bytes",
            "peak_reserved_bytes",
            "retries",
            "ooms",
        ] {
            let measured: u64 = column(figure).parse().unwrap();
            assert_eq!(replayed[figure], measured, "{program}, {figure}: {row:?}");
        }
    }
}

/// A snapshot of a program that is refused 70 MiB while it has 120 MiB reserved, by a limit of 128 MiB.
fn refused(name: &str) -> PathBuf {
    let trace = "op,id,bytes,stream,tag\nalloc,1,62914560,0,a\nalloc,2,62914560,0,b\nalloc,3,73400320,0,c\n";
    let trace = scratch(&format!("{name}.csv"), trace);
    let snapshot = trace.with_extension("pickle");
    let arguments = [
        "convert",
        trace.to_str().unwrap(),
        snapshot.to_str().unwrap(),
        "--capacity",
        "1GiB",
        "--conf",
        "per_process_memory_fraction:0.125",
    ];
    coalesce(&arguments, "", &[]).success();
    snapshot
}

#[test]
fn a_limit_is_inferred_from_a_snapshot_and_simulated() {
    let path = refused("limited");
    let path = path.to_str().unwrap();
    let replay = |more: &[&str]| -> Value {
        let out = coalesce(&[&["replay", path, "--json"], more].concat(), "", &[]).success();
        serde_json::from_str(&out).unwrap()
    };
    let recorded = replay(&[]);
    assert_eq!(recorded["ooms"], 1);
    let remarks = recorded["remarks"].to_string();
    for words in [
        "device memory: 1.00 GiB, reserved and free memory together",
        "limit: between 120.0 MiB and 190.0 MiB, inferred from the refusal of 70.0 MiB while the device had \
         904.0 MiB free; replays use 120.0 MiB",
        "settings: 'per_process_memory_fraction:0.125', as recorded",
    ] {
        assert!(remarks.contains(words), "no '{words}' in: {remarks}");
    }
    let more = replay(&["--limit", "190MiB"]);
    assert_eq!(
        (&more["ooms"], &more["failures_averted"]),
        (&0.into(), &1.into())
    );
    let text = coalesce(&["diagnose", path], "", &[]).success();
    assert!(
        text.contains("limit: between 120.0 MiB and 190.0 MiB"),
        "{text}"
    );
}

#[test]
fn sampled_graphs_fit_as_measured_on_a_gpu() {
    let recording = recording(&folder(), "gat_sampled").unwrap();
    compare("gat_sampled", &recording);
}

#[test]
fn a_detector_fits_as_measured_on_a_gpu_but_for_two_rows() {
    let recording = recording(&folder(), "fasterrcnn").unwrap();
    compare("fasterrcnn", &recording);
}

#[test]
fn a_program_with_cuda_graphs_runs_as_measured_on_a_gpu() {
    compare_all("compile_cudagraphs");
}

#[test]
fn a_language_model_fits_as_measured_on_a_gpu() {
    let Some(folder) = std::env::var_os("COALESCE_H200") else {
        writeln!(stderr(), "SKIPPED: set COALESCE_H200 to a folder").unwrap();
        return;
    };
    let recording = recording(Path::new(&folder), "rlhf").unwrap();
    compare("rlhf", &recording);
}
