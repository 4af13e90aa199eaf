//! The pages of `tests/cmd`: what a person types, and what the program answers.
//!
//! A page has sentences and blocks of ` ```console `. In a block, a line with `$ ` begins a command for `bash`, lines with
//! `> ` continue it, the lines below are what it prints on both streams, and `? 1` is its exit status unless that is 0; of
//! several commands joined by `|`, that of the last that failed. In the
//! expected lines, `[..]` stands for any text and `...` for any lines.
//!
//! The commands of a page run in an empty folder of their own, in which `workloads`, `results` and `benches` are those of
//! the checkout. The programs in `tests/cmd/bin` can be called, and `$SIMULATED_CUDA` is a folder with a CUDA driver without
//! a GPU, for `LD_LIBRARY_PATH`.
//!
//! `SNAPSHOTS=overwrite cargo test -p coalesce-gpu --test verbs transcripts` writes the answers anew. Read the difference
//! before it is committed: each figure in it is a claim to a user.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use snapbox::data::DataFormat;
use snapbox::{Assert, Data, IntoData, Redactions};

use super::{checkout, without_settings};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd")
}

/// What differs from run to run, or is a fact about the build.
fn redactions() -> Redactions {
    let mut redactions = Redactions::new();
    for (name, pattern) in [
        ("[SECONDS]", r"tried in (?<redacted>[0-9.]+) s"),
        ("[SECONDS]", r"it reserved .* in (?<redacted>[0-9]+) s"),
        ("[SECONDS]", r"found after(?<redacted> +[0-9.]+) s"),
        (
            "[SECONDS]",
            r#""(seconds|found_after_s)": ?(?<redacted>[0-9.e-]+)"#,
        ),
        (
            "[NS]",
            r"(ns_per_pair|min|max|cpu|overhead)=(?<redacted>[0-9.]+)",
        ),
        ("[DATE]", r"coalesce [0-9.]+ on (?<redacted>[0-9-]+)"),
        ("[FOLDER]", r"(?<redacted>[^ ]*/tmp\.[A-Za-z0-9]{10})"),
    ] {
        let pattern = regex::Regex::new(pattern).unwrap();
        redactions.insert(name, pattern).unwrap();
    }
    redactions
}

/// Checks the pages of a folder, all at the same time.
fn check(topic: &str) {
    let entries = fs::read_dir(folder().join(topic)).unwrap();
    let pages = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"));
    thread::scope(|scope| {
        for page in pages {
            scope.spawn(move || check_page(&page));
        }
    });
}

fn check_page(page: &Path) {
    let expected = Data::read_from(page, Some(DataFormat::Text));
    let actual = played(&fs::read_to_string(page).unwrap());
    let assert = Assert::new()
        .action_env("SNAPSHOTS")
        .normalize_paths(false)
        .redact_with(redactions());
    assert.eq(actual.into_data(), expected);
}

/// The page with what its commands print now.
fn played(page: &str) -> String {
    let own = tempfile::tempdir().unwrap();
    for name in ["workloads", "results", "benches"] {
        symlink(checkout().join(name), own.path().join(name)).unwrap();
    }
    let driver = tempfile::tempdir().unwrap();
    simcuda::library::place(driver.path()).unwrap();
    let mut text = String::new();
    let mut is_console = false;
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        is_console = if is_console {
            line != "```"
        } else {
            line == "```console"
        };
        let typed = line.strip_prefix("$ ").filter(|_| is_console);
        if !is_console || typed.is_some() || line == "```console" {
            text += &format!("{line}\n");
        }
        let Some(typed) = typed else { continue };
        let mut command = typed.to_owned();
        while let Some(line) = lines.next_if(|line| line.starts_with('>')) {
            command += &format!("\n{}", line.strip_prefix("> ").unwrap_or_default());
            text += &format!("{line}\n");
        }
        text += &answer(&command, own.path(), driver.path());
    }
    text
}

/// What a command prints on both streams in a folder, and its exit status if that is not 0.
fn answer(command: &str, folder: &Path, driver: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_coalesce"));
    let mut paths = vec![
        program.parent().unwrap().to_owned(),
        self::folder().join("bin"),
    ];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let mut bash = Command::new("bash");
    without_settings(&mut bash)
        .args([
            "-c",
            &format!("exec 2>&1 < /dev/null; set -o pipefail\n{command}"),
        ])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths).unwrap())
        .env("SIMULATED_CUDA", driver);
    let ended = bash.output().unwrap();
    let mut text = String::from_utf8(ended.stdout).unwrap();
    text = text.replace(driver.to_str().unwrap(), "[CUDA]");
    text = text.replace(folder.to_str().unwrap(), "[HERE]");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    match ended.status.code() {
        Some(0) => text,
        Some(status) => format!("{text}? {status}\n"),
        None => format!("{text}? killed\n"),
    }
}

/// One test for each folder of pages, so that a verb can be tested without the others.
macro_rules! topics {
    ($($topic:ident)+) => {
        const TOPICS: &[&str] = &[$(stringify!($topic)),+];

        $(
            #[test]
            fn $topic() {
                check(stringify!($topic));
            }
        )+
    };
}

topics! {
    advise bench coalesce compare convert coverage diagnose diff fits limits place plot plugin policies realism replay
    report schema script shell summary sweep verify workloads
}

#[test]
fn each_folder_has_a_test() {
    let entries = fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut folders: Vec<String> = names.filter(|name| name != "bin").collect();
    folders.sort();
    assert_eq!(folders, TOPICS);
}
