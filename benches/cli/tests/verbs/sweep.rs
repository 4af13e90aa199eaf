//! Sweeps that are interrupted, and two at the same time.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{coalesce, scratch_folder, trace};

/// A sweep that has enough cells to be interrupted.
fn sweep(folder: &Path) -> PathBuf {
    let trace = trace("resnet50_fp32_fixed224");
    let text = format!(
        r#"
        [settings]
        default = ""
        round8 = "roundup_power2_divisions:8"
        expand = "expandable_segments:True"
        [[workload]]
        traces = "{trace}"
        [[workload]]
        presets = ["fragmentation_article", "fragmentation_large", "grad_accumulation"]
        [[run]]
        capacities = ["1TiB", "110%", "least"]
        addresses = ["up", "firstfit"]
        seeds = [1, 2]
        "#
    );
    let path = folder.join("sweep.toml");
    fs::write(&path, text).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(sweep: &Path, out: &Path, more: &[&str]) -> crate::Ended {
    let arguments = [&["sweep", text(sweep), "--out", text(out)], more].concat();
    coalesce(&arguments, "", &[])
}

/// Starts a sweep and stops it once its journal has some lines. Returns what it printed to standard error.
fn stop(sweep: &Path, out: &Path, lines: usize, how: impl FnOnce(&mut Child)) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_coalesce"))
        .args(["sweep", text(sweep), "--out", text(out)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = out.with_extension("csv.journal");
    loop {
        let written = fs::read_to_string(&journal).unwrap_or_default();
        if written.lines().count() >= lines || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    how(&mut child);
    let ended = child.wait_with_output().unwrap();
    String::from_utf8(ended.stderr).unwrap()
}

#[cfg(unix)]
#[test]
fn a_sweep_interrupted_at_the_keyboard_says_how_to_resume() {
    let folder = scratch_folder("sweep_interrupted");
    let (sweep, out) = (sweep(&folder), folder.join("out.csv"));
    let printed = stop(&sweep, &out, 3, |child| {
        let pid = child.id().to_string();
        let kill = Command::new("kill").args(["-INT", &pid]).status();
        assert!(kill.unwrap().success());
    });
    // The sweep may have been faster.
    if !out.exists() {
        let told = "out.csv.journal keeps the completed cells: the same command resumes";
        assert!(printed.contains(told), "{printed}");
    }
    run(&sweep, &out, &[]).success();
}

#[test]
fn an_interrupted_sweep_gives_the_same_results() {
    let folder = scratch_folder("sweep_whole");
    let sweep = sweep(&folder);
    let whole = folder.join("whole.csv");
    run(&sweep, &whole, &["--jobs", "1"]).success();
    let expected = fs::read_to_string(&whole).unwrap();
    let cells = expected.lines().count() - 1;
    assert!(cells > 60, "{cells}");
    assert!(!folder.join("whole.csv.journal").exists());

    let killed = folder.join("killed.csv");
    let random = RandomState::new();
    for time in 0..3 {
        // Kill it at a different place each time.
        let lines = 2 + time * cells / 4 + random.hash_one(time) as usize % (cells / 4);
        stop(&sweep, &killed, lines, |child| child.kill().unwrap());
    }
    run(&sweep, &killed, &[]).success();
    assert_eq!(fs::read_to_string(&killed).unwrap(), expected);
}

/// Also one that writes through a link to the same file.
#[cfg(unix)]
#[test]
fn a_second_sweep_to_the_same_file_is_refused() {
    use coalesce_bench::sweep::journal::Journal;

    let folder = scratch_folder("sweep_twice");
    let (sweep, out, link) = (
        sweep(&folder),
        folder.join("out.csv"),
        folder.join("link.csv"),
    );
    fs::write(&out, "").unwrap();
    std::os::unix::fs::symlink(&out, &link).unwrap();
    let (first, _) = Journal::open(&Journal::path_for(&out), "# coalesce sweep").unwrap();
    let refused = &["out.csv.journal", "another sweep is writing this file"];
    run(&sweep, &out, &[]).failure(1, refused);
    run(&sweep, &link, &[]).failure(1, refused);
    let journal = fs::read_to_string(folder.join("out.csv.journal")).unwrap();
    assert!(journal.starts_with("# coalesce sweep #"), "{journal}");
    drop(first);
}

#[test]
fn a_trace_of_a_sweep_is_not_replaced() {
    let folder = scratch_folder("sweep_trace");
    let sweep = folder.join("sweep.toml");
    fs::write(
        &sweep,
        "[settings]\ndefault = \"\"\n[[workload]]\ntraces = \"a.csv\"\n[[run]]\n",
    )
    .unwrap();
    let trace = folder.join("a.csv");
    let text = "op,id,bytes,stream,tag\na,0,512,0,x\nf,0,,,\n";
    fs::write(&trace, text).unwrap();
    let refused = &["--out: ", "a.csv is read: it would be replaced"];
    run(&sweep, &trace, &[]).failure(2, refused);
    assert_eq!(fs::read_to_string(&trace).unwrap(), text);
}
