//! The recordings that an argument of `coalesce advise` names: a file, the files of a folder, or those that a pattern
//! matches.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use coalesce_alloc::printable::{self, printable};
use coalesce_workloads::formats;
use coalesce_workloads::formats::source::Source;

use super::input;

/// The recordings of all arguments, those of a folder or a pattern in the order of their ranks.
///
/// # Errors
/// If a folder cannot be listed, a folder or a pattern has no recording, or a source cannot be opened.
pub fn expanded(arguments: &[Source]) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for argument in arguments {
        match argument {
            Source::File(path) if path.is_dir() => sources.extend(of_folder(path)?),
            Source::File(path) if is_pattern(path) => sources.extend(matching(path)?),
            Source::File(path) if !path.exists() => sources.push(argument.clone()),
            other => sources.push(kept(other)?),
        }
    }
    Ok(sources)
}

/// The source, in memory if it can be read only once, because it is looked into before it is opened.
fn kept(source: &Source) -> anyhow::Result<Source> {
    input::announce(source);
    let kept = source.clone().kept();
    kept.with_context(|| source.to_string())
}

/// The recordings in a folder; files of other formats and hidden files are left out.
fn of_folder(folder: &Path) -> anyhow::Result<Vec<Source>> {
    let cannot = || format!("cannot list the folder {}", printable::path(folder));
    let mut files = Vec::new();
    for entry in folder.read_dir().with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() && !name.starts_with('.') && formats::may_be_read(&path) {
            files.push(path);
        }
    }
    ensure!(
        !files.is_empty(),
        "{}: a folder without a recording; {}",
        printable::path(folder),
        formats::READ
    );
    Ok(in_order(files))
}

/// Whether a name that no file has is a pattern.
fn is_pattern(path: &Path) -> bool {
    !path.exists() && path.to_string_lossy().contains(['*', '?', '['])
}

/// The files that a pattern matches, which a shell has left as it is: in quotes, or on Windows.
fn matching(pattern: &Path) -> anyhow::Result<Vec<Source>> {
    let text = pattern.to_string_lossy();
    let found =
        glob::glob(&text).with_context(|| format!("the pattern '{}'", printable(&*text)))?;
    let files: Vec<PathBuf> = found.flatten().filter(|path| path.is_file()).collect();
    ensure!(
        !files.is_empty(),
        "'{}': no file matches the pattern",
        printable(&*text)
    );
    Ok(in_order(files))
}

/// Files in the order of the numbers in their names: rank2 before rank10.
fn in_order(mut files: Vec<PathBuf>) -> Vec<Source> {
    files.sort_by_cached_key(|path| parts(&path.to_string_lossy()));
    files.into_iter().map(Source::File).collect()
}

/// A name as texts, each with the number behind it.
fn parts(name: &str) -> Vec<(String, u128)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, behind) = rest.split_at(digits);
        let end = behind
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(behind.len());
        let (number, behind) = behind.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or(u128::MAX)));
        rest = behind;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_ordered_by_their_numbers() {
        let files = [
            "job/rank10.pickle",
            "job/rank2.pickle",
            "job/rank.pickle",
            "a",
        ];
        let sorted = in_order(files.map(PathBuf::from).to_vec());
        let names: Vec<String> = sorted.iter().map(Source::to_string).collect();
        assert_eq!(
            names,
            [
                "a",
                "job/rank2.pickle",
                "job/rank10.pickle",
                "job/rank.pickle"
            ]
        );
    }

    #[test]
    fn a_file_with_the_name_of_a_pattern_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a[1].csv");
        assert!(is_pattern(&path));
        std::fs::write(&path, "").unwrap();
        assert!(!is_pattern(&path));
        assert!(!is_pattern(Path::new("rank0.pickle")));
    }
}
