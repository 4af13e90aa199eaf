//! Tests of the program `coalesce`: arguments, output and exit status.
//!
//! Most are pages of [`transcripts`]. Here is what a page cannot say: interrupts, full disks, terminals, times, and
//! properties of many answers.
#![allow(missing_docs)]

mod advise;
mod documents;
mod gpu;
mod hostile;
mod measured;
#[cfg(target_os = "linux")]
mod plugin;
mod schema;
mod sweep;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod transcripts;
#[cfg(target_os = "linux")]
mod unwritable;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// The result of a run of the program.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// The standard output of a successful run.
    fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// Expects a failure with an exit status, a message that contains all `words`, and no output.
    fn failure(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert_eq!(self.out, "");
        for word in words {
            assert!(self.err.contains(word), "no '{word}' in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// Runs the program with a text on its standard input and some environment variables.
fn coalesce(arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> Ended {
    run(
        Command::new(env!("CARGO_BIN_EXE_coalesce")).args(arguments),
        input,
        variables,
    )
}

/// Runs a command as [`coalesce`] does.
fn run(command: &mut Command, input: &str, variables: &[(&str, &str)]) -> Ended {
    let mut child = without_settings(command)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program does not read its input if its arguments are invalid.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Lets a command not depend on the settings of the person who runs the tests.
fn without_settings(command: &mut Command) -> &mut Command {
    for name in [
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
    ] {
        command.env_remove(name);
    }
    command
}

/// The root of the checkout.
fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// A table of the newest recorded results.
fn recorded(table: &str) -> PathBuf {
    let folders = fs::read_dir(checkout().join("results")).unwrap();
    let tables = folders.map(|folder| folder.unwrap().path().join(table));
    tables.filter(|table| table.exists()).max().unwrap()
}

/// The path of a recorded trace.
fn trace(name: &str) -> String {
    let path = checkout().join(format!("workloads/traces/{name}.csv.gz"));
    path.to_str().unwrap().to_owned()
}

/// The folder of the running test. Tests run in parallel and use the same file names.
fn own_folder() -> PathBuf {
    // The thread has the name of the test. The folder has a hash of it: a word that a test expects in an error message
    // could otherwise match the path in that message.
    let mut hasher = DefaultHasher::new();
    thread::current().name().hash(&mut hasher);
    let test = format!("{:016x}", hasher.finish());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Creates a file in the test's folder.
fn scratch(name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = own_folder().join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// Creates an empty folder in the test's folder.
fn scratch_folder(name: &str) -> PathBuf {
    let path = own_folder().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// All files in a folder and in those in it.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
