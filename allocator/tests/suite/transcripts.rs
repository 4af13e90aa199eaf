//! Programs with everything that an allocator does for them: `tests/transcripts/*.txt`.
//!
//! A file has cases, each with a title (`== TITLE`), headers, and one operation in each line. What is indented below
//! an operation is what it did: the address of an allocation, the driver calls (`>`), the error, and the bytes held
//! by the allocator and by freed blocks that wait, if they changed. The state is checked after each operation. `#`
//! starts a comment: the rule that a line shows.
//!
//! `COALESCE_RECORD=1` writes what the operations do today: read the difference before you commit it.

mod case;
mod program;

use std::fs;
use std::path::{Path, PathBuf};

use self::case::Case;
use self::program::Program;

/// The lines of a file with what its operations do now.
fn performed(text: &str) -> String {
    let mut done = String::new();
    let mut case = Case::default();
    let mut program: Option<Program> = None;
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        done += line;
        done.push('\n');
        let operation = line.split('#').next().unwrap_or_default().trim();
        if let Some(title) = operation.strip_prefix("== ") {
            program = None;
            case = Case::new(title);
        } else if !operation.is_empty() && (program.is_some() || !case.read_header(operation)) {
            let program = program.get_or_insert_with(|| Program::new(&case));
            for outcome in program.perform(operation) {
                done += &format!("  {outcome}\n");
            }
        }
    }
    done
}

fn compare(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).unwrap();
    let performed = performed(&text);
    if std::env::var_os("COALESCE_RECORD").is_some() {
        fs::write(path, performed).unwrap();
        return Ok(());
    }
    let differs = |(a, b): (&str, &str)| a != b;
    let (written, now) = (text.lines(), performed.lines());
    let at = written.zip(now).position(differs).or_else(|| {
        (text != performed).then(|| text.lines().count().min(performed.lines().count()))
    });
    let Some(at) = at else { return Ok(()) };
    let [written, now] = [&text, &performed].map(|text| text.lines().nth(at).unwrap_or("(end)"));
    let title = text
        .lines()
        .take(at + 1)
        .filter(|line| line.starts_with("=="))
        .last();
    Err(format!(
        "{}, line {}, {}:\n  written: {written}\n  now:     {now}",
        path.display(),
        at + 1,
        title.unwrap_or_default()
    ))
}

#[test]
fn programs_go_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 5);
    let different: Vec<String> = files
        .iter()
        .filter_map(|path| compare(path).err())
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}
