//! The program `coalesce` as a person uses it: what they type, what they see, what it exits with.
#![allow(missing_docs)]

mod advise;
mod compare;
mod convert;
mod diagnose;
mod gpu;
mod lists;
mod place;
mod realism;
mod replay;
mod report;
mod script;
mod summary;
mod sweep;
mod verify;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the program left behind.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    /// It did what was asked.
    fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// It refused, said why in words that contain all of `said`, and printed no result.
    fn with_error(self, code: i32, said: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert_eq!(self.out, "");
        for words in said {
            assert!(self.err.contains(words), "no '{words}' in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

/// Runs the program with a text on its standard input and some environment variables.
fn coalesce(arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_coalesce"))
        .args(arguments)
        .env_remove("PYTORCH_CUDA_ALLOC_CONF")
        .env_remove("PYTORCH_ALLOC_CONF")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments does not read on.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The top of the checkout.
fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// The recorded trace of that name.
fn trace(name: &str) -> String {
    let path = checkout().join(format!("workloads/traces/{name}.csv.gz"));
    path.to_str().unwrap().to_owned()
}

/// A new file of the given name in a folder that tests may write to.
fn scratch(name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// A new, empty folder of the given name.
fn scratch_folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}
