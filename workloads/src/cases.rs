//! Cases that are kept as text: inputs, each with what is found for it.
//!
//! A case is a line `INPUT => FOUND`, or lines of input that lines `=> FOUND` follow. Lines that begin with `// ` are
//! comments. `COALESCE_RECORD=1 cargo test` writes what is found into the files, and `=> ?` is enough behind a new
//! input; read the difference before it is committed.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, mem};

/// Compares what `find` returns for the inputs in a file with what the file says.
///
/// # Panics
/// If they differ, with the file and the line.
pub fn check(file: impl AsRef<Path>, mut find: impl FnMut(&str) -> String) {
    let path = file.as_ref();
    let file = path.display();
    let recorded = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (mut found, mut input) = (String::new(), Vec::new());
    for line in recorded.lines() {
        if line.is_empty() || line.starts_with("// ") {
            writeln!(found, "{line}").unwrap();
        } else if let Some((input, _)) = line.split_once(" => ") {
            writeln!(found, "{input} => {}", find(input.trim_end())).unwrap();
        } else if !line.starts_with("=>") {
            input.push(line);
            writeln!(found, "{line}").unwrap();
        } else if !input.is_empty() {
            for line in find(&mem::take(&mut input).join("\n")).lines() {
                writeln!(found, "=> {line}").unwrap();
            }
        }
    }
    assert!(input.is_empty(), "{file}: an input without `=>`: {input:?}");
    if env::var_os("COALESCE_RECORD").is_some() {
        return fs::write(path, &found).unwrap();
    }
    let lines = recorded.lines().zip(found.lines());
    for (number, (expected, found)) in (1..).zip(lines) {
        assert_eq!(found, expected, "{file}, line {number}");
    }
    assert_eq!(found.lines().count(), recorded.lines().count(), "{file}");
}
