//! Recordings that are not part of this repository, in folders that environment variables name.

use std::fs;
use std::io::{Write, stderr};
use std::path::PathBuf;

/// Tells something past the test harness, which keeps what succeeds to itself.
pub fn say(line: &str) {
    let mut out = stderr();
    writeln!(out, "{line}").unwrap();
}

/// The files with that ending in the folder that `variable` names, by name. None if it names no folder,
/// which is told.
pub fn files(variable: &str, ending: &str) -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os(variable) else {
        say(&format!("SKIPPED: set {variable} to a folder"));
        return Vec::new();
    };
    let files = fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no {ending} in {}", folder.display());
    files
}
