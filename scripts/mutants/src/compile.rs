//! Compiles the copy, without the mutants that do not compile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::area::Tests;
use crate::blame::{Diagnostic, blamed};
use crate::checkout::{Copy, Files};
use crate::instrument;
use crate::process::INTERRUPTED;
use crate::rewrite::Part;
use crate::site::Mutable;
use crate::state::Log;

/// A program of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binary {
    /// The package and the target.
    pub name: String,
    /// The executable file.
    pub program: PathBuf,
    /// The folder that the tests run in, that of the package.
    pub folder: PathBuf,
}

/// Where an area is built, and from what.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The checkout.
    pub checkout: &'a Path,
    /// Its files.
    pub files: &'a Files,
    /// The mutants of the area.
    pub mutants: &'a [Mutable],
    /// The programs of tests.
    pub tests: &'a [Tests],
    /// The folder of the copy.
    pub copy: &'a Path,
    /// The folder of what cargo builds.
    pub target: &'a Path,
}

/// Test programs with mutants.
#[derive(Debug)]
pub struct Compiled {
    /// The copy they were built from.
    pub copy: Copy,
    /// The programs.
    pub binaries: Vec<Binary>,
    /// The mutants that do not compile, with the errors.
    pub left_out: HashMap<u32, String>,
}

/// Compiles the tests with all mutants that compile. Reads from the log which do not, and adds those it finds.
///
/// # Errors
/// If the code without mutants does not compile, or cargo cannot be run.
pub fn compile(plan: &Plan, log: &mut Log) -> anyhow::Result<Compiled> {
    let mutants = plan.mutants;
    let mut left_out: HashMap<u32, String> = HashMap::new();
    for row in log.rows() {
        if let [number, error] = &row[..]
            && let Ok(number) = number.parse()
        {
            left_out.insert(number, error.clone());
        }
    }
    loop {
        let rewritten = instrument::rewritten(mutants, &left_out.keys().copied().collect());
        let files = instrument::copied(plan.files.clone(), mutants, &rewritten)?;
        let copy = Copy::new(plan.copy.to_owned(), files, plan.checkout)?;
        let built = run(plan)?;
        if built.is_complete {
            let binaries = built.binaries;
            return Ok(Compiled {
                copy,
                binaries,
                left_out,
            });
        }
        if INTERRUPTED.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let parts: HashMap<&str, &[Part]> = mutants
            .iter()
            .zip(&rewritten)
            .map(|(file, new)| (&*file.file, &*new.parts))
            .collect();
        let mut guilty = blamed(&built.errors, &parts);
        guilty.retain(|mutant, _| !left_out.contains_key(mutant));
        if guilty.is_empty() {
            let first = built
                .errors
                .first()
                .map_or(&built.said, |error| &error.text);
            bail!("the code does not compile, whatever the mutants:\n{first}");
        }
        eprintln!("{} mutants do not compile", left_out.len() + guilty.len());
        for (mutant, error) in guilty {
            log.append(&[&mutant.to_string(), error.summary()])?;
            left_out.insert(mutant, error.summary().to_owned());
        }
    }
}

/// What cargo did.
struct Built {
    binaries: Vec<Binary>,
    errors: Vec<Diagnostic>,
    is_complete: bool,
    said: String,
}

fn run(plan: &Plan) -> anyhow::Result<Built> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(plan.copy);
    cargo.args(["test", "--no-run", "--quiet", "--message-format=json"]);
    for tests in plan.tests {
        for package in tests.packages {
            cargo.args(["--package", package]);
        }
        cargo.args(tests.targets);
    }
    let output = cargo
        .env("CARGO_TARGET_DIR", plan.target)
        // All positions change with each build.
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("RUSTFLAGS", "--cap-lints=allow")
        .stdin(Stdio::null())
        .output()
        .context("cargo cannot be run")?;
    let mut built = Built {
        binaries: Vec::new(),
        errors: Vec::new(),
        is_complete: output.status.success(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        match message["reason"].as_str() {
            Some("compiler-message") => {
                let error = Diagnostic::read(&message["message"]);
                built
                    .errors
                    .extend(error.filter(|error| !built.errors.contains(error)));
            }
            Some("compiler-artifact") => built.binaries.extend(binary(&message)),
            _ => {}
        }
    }
    Ok(built)
}

/// The program of tests that cargo says it made.
fn binary(message: &Value) -> Option<Binary> {
    if message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let target = &message["target"];
    let is_library = target["kind"].as_array()?.iter().any(|kind| kind == "lib");
    let target = match is_library {
        true => "lib",
        false => target["name"].as_str()?,
    };
    let package = package(message["package_id"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(Binary {
        name: format!("{package} {target}"),
        program,
        folder: folder.to_owned(),
    })
}

/// The name of a package: `path+file:///folder/NAME#0.1.0` or `path+file:///folder#NAME@0.1.0`.
fn package(id: &str) -> &str {
    let (path, fragment) = id.rsplit_once('#').unwrap_or(("", id));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_are_named_in_two_ways() {
        assert_eq!(
            package("path+file:///x/allocator#coalesce-alloc@0.1.0"),
            "coalesce-alloc"
        );
        assert_eq!(package("path+file:///x/workloads#0.1.0"), "workloads");
    }

    #[test]
    fn only_programs_of_tests_are_run() {
        let mut message = json!({
            "profile": {"test": true}, "executable": "/t/suite-1", "manifest_path": "/c/a/Cargo.toml",
            "package_id": "path+file:///c/a#b@0.1.0", "target": {"kind": ["test"], "name": "suite"},
        });
        let suite = binary(&message).unwrap();
        assert_eq!(
            (&*suite.name, &*suite.folder),
            ("b suite", Path::new("/c/a"))
        );
        message["target"] = json!({"kind": ["lib"], "name": "b_c"});
        assert_eq!(binary(&message).unwrap().name, "b lib");
        message["profile"]["test"] = json!(false);
        assert_eq!(binary(&message), None);
    }
}
