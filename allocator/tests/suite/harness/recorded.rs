//! Programs that are kept as text with what they did: the files of a folder of `tests`.
//!
//! `COALESCE_RECORD=1` writes what they do today.

use std::fs;
use std::path::Path;

/// Compares each file of a folder with what `perform` makes of it.
///
/// # Panics
/// If one differs, with the case, the line, and what the line is now.
pub fn check(name: &str, mut perform: impl FnMut(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    let files = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name}");
    let mut different = Vec::new();
    for path in paths {
        let written = fs::read_to_string(&path).unwrap();
        let now = perform(&written);
        if std::env::var_os("COALESCE_RECORD").is_some() {
            fs::write(&path, now).unwrap();
        } else if let Some(difference) = difference(&written, &now) {
            different.push(format!("{}, {difference}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The first line that differs, with the title of its case.
fn difference(written: &str, now: &str) -> Option<String> {
    if written == now {
        return None;
    }
    let pairs = written.lines().zip(now.lines());
    let at = pairs.take_while(|(written, now)| written == now).count();
    let titles = written.lines().take(at + 1);
    let title = titles.filter(|line| line.starts_with("==")).last();
    let [written, now] = [written, now].map(|text| text.lines().nth(at).unwrap_or("(end)"));
    Some(format!(
        "line {}, {}:\n  written: {written}\n  now:     {now}",
        at + 1,
        title.unwrap_or_default()
    ))
}
