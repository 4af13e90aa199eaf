//! The program without a checkout, as after `cargo install`.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{Ended, checkout, run, scratch};

/// An empty folder outside the checkout, removed at the end.
struct Elsewhere(TempDir);

impl Elsewhere {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("coalesce");
        fs::copy(env!("CARGO_BIN_EXE_coalesce"), program).unwrap();
        Self(folder)
    }

    fn coalesce(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(self.0.path().join("coalesce"));
        run(command.args(arguments).current_dir(self.0.path()), "", &[])
    }
}

#[test]
fn the_program_runs_without_a_checkout() {
    let elsewhere = Elsewhere::new();
    assert_eq!(
        elsewhere.coalesce(&["--version"]).success(),
        "coalesce 0.1.0\n"
    );
    for arguments in [
        &["policies"][..],
        &["workloads"],
        &["replay", "fragmentation_article"],
        &["diagnose", "growth_staircase"],
        &[
            "bench",
            "hot_4KiB",
            "--device",
            "sim",
            "--policy",
            "pytorch",
            "--seconds",
            "0",
        ],
    ] {
        assert!(
            !elsewhere.coalesce(arguments).success().is_empty(),
            "{arguments:?}"
        );
    }
    let table = scratch("sweep_elsewhere.toml", "");
    let text = "[settings]\ndefault = ''\n[[workload]]\npresets = ['churn']\n[[run]]\n";
    fs::write(&table, text).unwrap();
    elsewhere
        .coalesce(&["sweep", table.to_str().unwrap(), "--out", "out.csv"])
        .success();
    assert!(
        elsewhere
            .coalesce(&["report", "out.csv"])
            .success()
            .contains("churn")
    );
}

/// Defaults that are files of a checkout are reported as missing, with the way to name them.
#[test]
fn missing_files_of_the_checkout_are_reported() {
    let elsewhere = Elsewhere::new();
    for (arguments, words) in [
        (&["summary"][..], "name a table"),
        (&["report"], "name a table"),
        (&["realism"], "--traces"),
        (
            &["bench", "gpt_trace", "--device", "sim", "--seconds", "0"],
            "--traces",
        ),
    ] {
        let ended = elsewhere.coalesce(arguments);
        assert_eq!(
            (ended.code, &*ended.out),
            (Some(1), ""),
            "{arguments:?}: {}",
            ended.err
        );
        for words in [words, "not in a checkout of Coalesce"] {
            assert!(ended.err.contains(words), "no '{words}' in: {}", ended.err);
        }
    }
    let traces = checkout().join("workloads/traces");
    let shape = [
        "bench",
        "gpt_trace",
        "--device",
        "sim",
        "--policy",
        "pytorch",
        "--seconds",
        "0",
    ];
    let named = [&shape[..], &["--traces", path(&traces)]].concat();
    assert!(
        elsewhere
            .coalesce(&named)
            .success()
            .contains("gpt2_small_amp_foreach")
    );
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
