//! The documents show what the program prints.

use std::fs;

use crate::{checkout, coalesce, trace};

#[test]
fn the_readme_shows_a_replay() {
    let file = trace("gpt2_small_amp_foreach");
    let replay = ["replay", &file, "--conf", "max_split_size_mb:128"];
    let text = coalesce(&replay, "", &[]).success();
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    assert!(readme.contains(&text), "not in the README: {text}");
}

/// Runs a command of the documentation, up to its first pipe. Paths are relative to the root of the checkout.
fn from_checkout(arguments: &str) -> String {
    let top = format!("{}/results/", checkout().display());
    let words: Vec<String> = arguments
        .split_whitespace()
        .take_while(|word| *word != "|")
        .map(|word| word.replacen("results/", &top, 1))
        .collect();
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    coalesce(&arguments, "", &[]).success()
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
