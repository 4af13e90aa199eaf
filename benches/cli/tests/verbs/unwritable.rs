//! Full disks, and files that cannot be written.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{coalesce, recorded, scratch, scratch_folder, trace};

const SWEEP: &str = "[settings]\ndefault = \"\"\n[[workload]]\npresets = [\"churn\"]\n[[run]]\n";

#[test]
fn a_full_disk_is_reported() {
    for arguments in [
        &["convert", "churn", "--to", "trace"][..],
        &["policies"],
        &["compare", "-", "-"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_coalesce"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(full)
            .output()
            .unwrap();
        let error = String::from_utf8(child.stderr).unwrap();
        assert_ne!(child.status.code(), Some(0), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    let words = ["cannot write /dev/full", "No space left"];
    coalesce(&["sweep", "-", "--out", "/dev/full"], SWEEP, &[]).failure(1, &words);
    assert!(!Path::new("/dev/full.journal").exists());
    coalesce(&["convert", "churn", "/dev/full", "--to", "trace"], "", &[]).failure(1, &words);
    let full = scratch_folder("full-disk").join("full.xlsx");
    symlink("/dev/full", &full).unwrap();
    let table = recorded("policies.csv");
    let summary = [
        "summary",
        table.to_str().unwrap(),
        "--xlsx",
        full.to_str().unwrap(),
    ];
    coalesce(&summary, "", &[]).failure(1, &["cannot write", "No space left"]);
}

/// The advice that was found is printed, other files are written, and the program fails.
#[test]
fn a_file_that_cannot_be_written_loses_no_advice() {
    let folder = scratch_folder("unwritable");
    let occupied = scratch("occupied", "").join("report.html");
    let file = folder.join("page.html");
    let page = file.to_str().unwrap();
    let one = trace("example_interleaved_free");
    for target in [&*folder, Path::new("/dev/full"), &occupied] {
        let target = target.to_str().unwrap();
        let to_json = format!("--json={target}");
        for arguments in [
            &["advise", &one, "--html", target][..],
            &["advise", &one, &to_json, "--html", page],
            &["advise", &one, &one, &to_json],
        ] {
            let ended = coalesce(arguments, "", &[]);
            assert_eq!(ended.code, Some(1), "{}", ended.err);
            assert!(ended.out.lines().count() > 5, "{}", ended.out);
            let last = ended.err.lines().last().unwrap();
            let is_told = last.contains("cannot write") && last.contains(target);
            assert!(is_told, "{last}");
        }
        let written = fs::read_to_string(page).unwrap();
        assert!(written.starts_with("<!doctype html>"));
        fs::remove_file(page).unwrap();
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}
