//! `coalesce summary`, and its output in `results/FINDINGS.md`.

use std::fs;

use crate::{checkout, coalesce, recorded, scratch_folder};

/// Runs a command of the documentation, up to its first pipe. Paths are relative to the root of the checkout.
fn from_checkout(arguments: &str) -> String {
    let top = format!("{}/results/", checkout().display());
    let words: Vec<String> = arguments
        .split_whitespace()
        .take_while(|word| *word != "|")
        .map(|word| word.replacen("results/", &top, 1))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    coalesce(&words, "", &[]).success()
}

#[test]
fn the_findings_show_the_output_of_their_commands() {
    let findings = fs::read_to_string(checkout().join("results/FINDINGS.md")).unwrap();
    let mut blocks = 0;
    for block in findings.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        let printed = from_checkout(command.strip_prefix("$ coalesce ").unwrap());
        assert!(
            command.contains(" | ") || printed.starts_with(shown),
            "{command} does not begin with:\n{shown}\n{printed}"
        );
        for line in shown.lines() {
            let is_printed = printed.lines().any(|printed| printed == line);
            assert!(is_printed, "{command} does not print: {line}\n{printed}");
        }
        blocks += 1;
    }
    assert!(blocks >= 7, "{blocks}");
}

#[test]
fn invalid_summaries_are_rejected() {
    let csv = recorded("findings.csv");
    let csv = csv.to_str().unwrap();
    let summary = |more: &[&str]| coalesce(&[&["summary", csv], more].concat(), "", &[]);
    summary(&["--against", "best"]).failure(1, &["no row 'best'", "gc0.6"]);
    summary(&["--against", "pytorch/gc0.66"]).failure(1, &["did you mean 'pytorch/gc0.6'?"]);
    summary(&["--capacity", "3GiB"]).failure(1, &["findings.csv: no rows match"]);
    summary(&["--family", "record"]).failure(1, &["no rows of family", "did you mean 'recorded'?"]);
}

/// Each policy has its own settings, so that "default" alone says nothing.
#[test]
fn policies_are_compared_with_the_reference() {
    let csv = recorded("policies.csv");
    let csv = csv.to_str().unwrap();
    let summary = |more: &[&str]| {
        let flags = ["summary", csv, "--capacity", "1TiB"];
        coalesce(&[&flags[..], more].concat(), "", &[])
    };
    let text = summary(&[]).success();
    assert!(
        text.starts_with("Compared with pytorch/default\n"),
        "{text}"
    );
    let cells = |text: &str, way: &str| -> Vec<String> {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(way)).unwrap();
        line.split("  ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let worse = |cells: Vec<String>| cells.iter().any(|cell| cell == "0, 20");
    assert!(worse(cells(&text, "cubecl_sliced/default ")), "{text}");
    let itself = summary(&["--against", "cubecl_sliced/default"]).success();
    assert!(!worse(cells(&itself, "cubecl_sliced/default ")), "{itself}");
    let ambiguous = summary(&["--against", "default"]);
    ambiguous.failure(1, &["name one of: ", "pytorch/default"]);
    let json = summary(&["--json"]).success();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["against"]["policy"], "pytorch");
    assert!(json["ways"][0]["efficiency"]["median"].is_f64(), "{json}");
}

#[test]
fn a_spreadsheet_is_written_beside_the_summary() {
    let csv = recorded("policies.csv");
    let csv = csv.to_str().unwrap();
    let folder = scratch_folder("spreadsheet");
    let file = folder.join("summary.xlsx");
    let summary = |more: &[&str]| coalesce(&[&["summary", csv], more].concat(), "", &[]);
    let to = |file: &std::path::Path| summary(&["--xlsx", file.to_str().unwrap()]);
    assert_eq!(to(&file).success(), summary(&[]).success());
    let written = fs::read(&file).unwrap();
    assert!(written.starts_with(b"PK"), "a ZIP file");

    let table = folder.join("table.csv");
    fs::copy(csv, &table).unwrap();
    to(&table).failure(2, &["--xlsx", "ends with .xlsx"]);
    assert_eq!(fs::read(&table).unwrap(), fs::read(csv).unwrap());

    to(&file.join("below-a-file.xlsx")).failure(1, &["cannot write", "below-a-file.xlsx"]);
    let mut read_only = fs::metadata(&file).unwrap().permissions();
    read_only.set_readonly(true);
    fs::set_permissions(&file, read_only).unwrap();
    to(&file).failure(1, &["cannot write", "summary.xlsx"]);
    assert_eq!(fs::read(&file).unwrap(), written);
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "nothing unfinished"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let full = scratch_folder("full-disk").join("full.xlsx");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let csv = recorded("policies.csv");
    let arguments = [
        "summary",
        csv.to_str().unwrap(),
        "--xlsx",
        full.to_str().unwrap(),
    ];
    coalesce(&arguments, "", &[]).failure(1, &["cannot write", "No space left"]);
}
