//! Recordings outside this repository, in folders named by environment variables.

use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;

/// Prints a line even if the test succeeds. The test harness captures what `eprintln!` prints.
pub fn say(line: &str) {
    let mut out = stderr();
    writeln!(out, "{line}").unwrap();
}

/// The files with this ending in the folder that `variable` names, sorted. Prints a note and returns none
/// if the variable is not set.
pub fn files(variable: &str, ending: &str) -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os(variable) else {
        say(&format!("SKIPPED: set {variable} to a folder"));
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|file| file.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no {ending} in {}", folder.display());
    files
}
