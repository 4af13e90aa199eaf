//! `coalesce summary`, and its output in `results/FINDINGS.md`.

use std::fs;

use crate::{checkout, coalesce};

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
    let csv = checkout().join("results/2026-11-20/findings.csv");
    let csv = csv.to_str().unwrap();
    let summary = |more: &[&str]| coalesce(&[&["summary", csv], more].concat(), "", &[]);
    summary(&["--baseline", "best"]).failure(1, &["no setting 'best'"]);
    summary(&["--capacity", "3GiB"]).failure(1, &["findings.csv: no rows match"]);
    summary(&["--family", "comb"]).failure(1, &["no rows match"]);
}
