//! `coalesce sweep` and `coalesce merge`.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{checkout, coalesce, scratch_folder};

/// A sweep that uses all features and has enough cells to be interrupted.
fn sweep(folder: &Path) -> PathBuf {
    let traces = checkout().join("workloads/traces");
    let text = format!(
        r#"
        [settings]
        default = ""
        round8 = "roundup_power2_divisions:8"
        expand = "expandable_segments:True"
        [[workload]]
        traces = "{}/example_interleaved_free.csv.gz"
        [[workload]]
        traces = "{}/resnet50_fp32_fixed224.csv.gz"
        [[workload]]
        presets = ["fragmentation_article", "grad_accumulation"]
        [[workload]]
        preset = "fragmentation_large"
        name = "fewer_rounds"
        with = {{ rounds = 5, bytes = "3MiB" }}
        [[run]]
        capacities = ["1TiB", "110%"]
        seeds = [1, 2]
        [[run]]
        settings = ["default", "expand"]
        capacities = ["least", "least+10%"]
        addresses = ["up", "firstfit"]
        "#,
        traces.display(),
        traces.display()
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

/// Starts the sweep and kills it once its journal has the given number of lines.
fn run_and_kill(sweep: &Path, out: &Path, lines: usize) {
    stop(sweep, out, lines, |child| child.kill().unwrap());
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
fn an_interrupted_or_partitioned_sweep_gives_the_same_results() {
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
        run_and_kill(&sweep, &killed, lines);
    }
    run(&sweep, &killed, &[]).success();
    assert_eq!(fs::read_to_string(&killed).unwrap(), expected);

    let shares: Vec<PathBuf> = (1..=4)
        .map(|part| folder.join(format!("{part}.csv")))
        .collect();
    for (part, share) in (1..).zip(&shares) {
        run(&sweep, share, &["--partition", &format!("{part}/4")]).success();
    }
    let merged = folder.join("merged.csv");
    let mut arguments = vec!["merge", "--out", text(&merged)];
    arguments.extend(shares.iter().rev().map(|share| text(share)));
    coalesce(&arguments, "", &[]).success();
    assert_eq!(fs::read_to_string(&merged).unwrap(), expected);

    arguments.pop();
    coalesce(&arguments, "", &[]).failure(1, &["cells are missing"]);
    arguments.extend([text(&shares[3]), text(&shares[2])]);
    coalesce(&arguments, "", &[]).failure(1, &["is in", "4.csv"]);
    assert_eq!(
        fs::read_to_string(&merged).unwrap(),
        expected,
        "the old file is kept"
    );
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
    assert!(journal.starts_with("# coalesce sweep\n"), "{journal}");
    drop(first);
}

#[test]
fn a_journal_of_another_sweep_is_rejected() {
    let folder = scratch_folder("sweep_other");
    let sweep = sweep(&folder);
    let out = folder.join("out.csv");
    run_and_kill(&sweep, &out, 3);
    assert!(out.with_extension("csv.journal").exists());
    let changed = fs::read_to_string(&sweep)
        .unwrap()
        .replace("rounds = 5", "rounds = 6");
    fs::write(&sweep, changed).unwrap();
    run(&sweep, &out, &[]).failure(1, &["out.csv.journal", "another sweep"]);
    assert!(!out.exists());

    // The same sweep, by a program with other sources.
    let journal = out.with_extension("csv.journal");
    let text = fs::read_to_string(&journal).unwrap();
    let (heading, rest) = text.split_once('\n').unwrap();
    fs::write(&journal, format!("{heading}0\n{rest}")).unwrap();
    let text = fs::read_to_string(&sweep).unwrap();
    fs::write(&sweep, text.replace("rounds = 6", "rounds = 5")).unwrap();
    run(&sweep, &out, &[]).failure(1, &["a program with other sources"]);
}

#[test]
fn an_invalid_sweep_is_rejected_in_one_line() {
    let folder = scratch_folder("sweep_wrong");
    let good = fs::read_to_string(sweep(&folder)).unwrap();
    let (path, out) = (folder.join("wrong.toml"), folder.join("out.csv"));
    for (old, new, words) in [
        ("[settings]", "[setings]", "unknown field `setings`"),
        ("[settings]", "[settings", "line 2"),
        ("divisions:8", "divisons:8", "setting round8"),
        ("round8 = \"", "round8 = 8 #", "expected a string"),
        (
            "fragmentation_article",
            "fragmentation_articel",
            "did you mean 'fragmentation_article'",
        ),
        ("rounds = 5", "round = 5", "did you mean 'rounds'"),
        ("rounds = 5", "rounds = -5", "rounds"),
        ("bytes = \"3MiB\"", "bytes = \"3QB\"", "bytes"),
        (
            "\"default\", \"expand\"",
            "\"defualt\"",
            "did you mean 'default'",
        ),
        ("\"110%\"", "\"110\u{2009}%\"", "not a capacity"),
        ("firstfit", "first", "no address policy"),
        (
            "seeds = [1, 2]",
            "policies = [\"pytroch\"]",
            "did you mean 'pytorch'",
        ),
        (
            "capacities = [\"least\", \"least+10%\"]",
            "capacities = []",
            "capacities is empty",
        ),
        (
            "name = \"fewer_rounds\"",
            "",
            "[[workload]] 4: a preset with other parameters needs a name",
        ),
        (
            "name = \"fewer_rounds\"",
            "name = \"grad_accumulation\"",
            "two workloads are called",
        ),
        ("preset = \"fragmentation_large\"", "", "exactly one of"),
        (
            "resnet50_fp32_fixed224.csv.gz",
            "llama2.csv.gz",
            "llama2.csv.gz: No such file",
        ),
        (
            "[settings]",
            "profile = \"mine.toml\"\n[settings]",
            "mine.toml",
        ),
        (
            "presets = [",
            "with = { rounds = 5 }\npresets = [",
            "[[workload]] 3: name and with apply only to preset and family",
        ),
        (
            "presets = [\"fragmentation_article\", \"grad_accumulation\"]",
            "presets = \"every\"",
            "presets is 'every': expected a list of names or \"all\"",
        ),
        (
            "preset = \"fragmentation_large\"\n        name = \"fewer_rounds\"",
            "family = \"fragmentation\"",
            "[[workload]] 4: a member of a family needs a name",
        ),
        (
            "seeds = [1, 2]",
            "families = [\"recordet\"]",
            "[[run]] 1: families: no workload of 'recordet'; did you mean 'recorded'",
        ),
        ("seeds = [1, 2]", "torch = [\"1.9\"]", "from 2.6 to"),
        ("seeds = [1, 2]", "policies = []", "policies is empty"),
        ("seeds = [1, 2]", "addresses = []", "addresses is empty"),
        (
            "seeds = [1, 2]",
            "policies = [\"plugin:none.so\"]",
            "no library",
        ),
    ] {
        assert!(good.contains(old), "{old}");
        fs::write(&path, good.replace(old, new)).unwrap();
        let ended = run(&path, &out, &[]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        ended.failure(1, &["wrong.toml", words]);
    }
    let workload = "[[workload]]\npreset = \"fragmentation_small\"\n";
    for (text, reason) in [
        (format!("[settings]\n{workload}[[run]]\n"), "no settings"),
        (
            format!("run = []\n[settings]\na = \"\"\n{workload}"),
            "no [[run]]",
        ),
        (
            "workload = []\n[settings]\na = \"\"\n[[run]]\n".to_owned(),
            "no [[workload]]",
        ),
    ] {
        fs::write(&path, text).unwrap();
        run(&path, &out, &[]).failure(1, &["wrong.toml", reason]);
    }
    let sweep = folder.join("sweep.toml");
    run(&sweep, &out, &["--partition", "5/4"]).failure(2, &["5/4", "1/n"]);
    run(&sweep, &out, &["--partition", "1/999"]).success();
    run(&sweep, &out, &["--partition", "999/999"]).failure(1, &["empty"]);
    run(&folder.join("none.toml"), &out, &[]).failure(1, &["none.toml", "No such file"]);
    run(&sweep, &folder, &[]).failure(1, &["is a folder"]);
    run(&sweep, &out, &["--jobs", "0"]).failure(2, &["--jobs"]);
    coalesce(&["sweep", text(&sweep)], "", &[]).failure(2, &["--out"]);
    let nowhere = sweep.join("out.csv"); // below a file
    run(&sweep, &nowhere, &[]).failure(1, &["cannot write", "out.csv.journal"]);
}

#[test]
fn a_policy_that_lacks_a_feature_has_a_row_without_figures() {
    let folder = scratch_folder("sweep_unsupported");
    let recording = checkout().join("workloads/recordings/h200/graph_step.trace.xz");
    let text = format!(
        "[[workload]]\ntraces = \"{}\"\n[[run]]\npolicies = [\"bfc\", \"pytorch\"]\n\
         [settings]\ndefault = \"\"\n",
        recording.display()
    );
    let path = folder.join("sweep.toml");
    fs::write(&path, text).unwrap();
    let out = folder.join("out.csv");
    run(&path, &out, &[]).success();
    let mut reader = csv::Reader::from_path(&out).unwrap();
    let rows: Vec<BTreeMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    let [of_bfc, of_pytorch] = [&rows[0], &rows[1]];
    assert_eq!(of_bfc["unsupported"], "work on more than one stream");
    assert_eq!(of_bfc["peak_reserved_bytes"], "");
    for column in [
        "workload",
        "address_policy",
        "lower_bound_bytes",
        "seed",
        "sweep",
    ] {
        assert_eq!(of_bfc[column], of_pytorch[column], "{column}");
    }
    assert_eq!(
        (&*of_bfc["policy"], &*of_pytorch["policy"]),
        ("bfc", "pytorch")
    );
    assert_eq!(of_pytorch["unsupported"], "");
}

#[test]
fn cells_can_be_listed_without_running_them() {
    let folder = scratch_folder("sweep_list");
    let sweep = sweep(&folder);
    let list = coalesce(&["sweep", text(&sweep), "--list"], "", &[]).success();
    assert!(
        list.contains("fewer_rounds, seed 2, pytorch, expand, 110%, up, 2.15\n"),
        "{list}"
    );
    let first = run(
        &sweep,
        &folder.join("out.csv"),
        &["--list", "--partition", "1/2"],
    )
    .success();
    let half = list.lines().step_by(2);
    assert!(first.lines().eq(half), "every other one");
}

#[test]
fn the_minimum_device_memory_of_more_than_any_device_has_is_not_searched() {
    let folder = scratch_folder("larger-than-any");
    let trace = "op,id,bytes,stream,tag\nalloc,1,184467440731615,0,a\n";
    fs::write(folder.join("large.csv"), trace).unwrap();
    let sweep = folder.join("sweep.toml");
    for capacity in ["least", "least+25%", "110%"] {
        let out = folder.join(format!("{capacity}.csv"));
        let text = format!(
            "[settings]\nexpandable = \"expandable_segments:True\"\n[[workload]]\ntraces = \"large.csv\"\n\
             [[run]]\nsettings = [\"expandable\"]\ncapacities = [\"{capacity}\"]\n"
        );
        fs::write(&sweep, text).unwrap();
        run(&sweep, &out, &[]).failure(1, &["large", "167.77 TiB", "16.00 TiB", "event 0"]);
    }
}

/// Recordings of other tools take part in a sweep; a snapshot first becomes a trace.
#[test]
fn recordings_of_other_formats_can_be_swept() {
    let folder = scratch_folder("other-formats");
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
               1,09:31:07.123456,allocate,0x7f3c00000000,3000000,0\n\
               1,09:31:07.123470,free,0x7f3c00000000,3000000,0\n";
    fs::write(folder.join("mine.log"), log).unwrap();
    let snapshot = checkout().join("workloads/tests/h200/gat_sampled.pickle.xz");
    fs::copy(snapshot, folder.join("mine.pickle.xz")).unwrap();
    let out = folder.join("out.csv");
    let swept = |file: &str| {
        let sweep = folder.join("sweep.toml");
        let workload = format!("[[workload]]\ntraces = \"{file}\"\n");
        fs::write(
            &sweep,
            format!("[settings]\ndefault = \"\"\n{workload}[[run]]\n"),
        )
        .unwrap();
        run(&sweep, &out, &[])
    };
    swept("mine.log").success();
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .contains("\nmine,,pytorch,default,1TiB,")
    );
    fs::remove_file(&out).unwrap();
    let recordings = folder.join("recordings");
    fs::create_dir(&recordings).unwrap();
    let recording = "workloads/recordings/h200/graph_step.trace.xz";
    fs::copy(checkout().join(recording), recordings.join("step.trace.xz")).unwrap();
    fs::write(recordings.join("measured.csv"), "program,rank\n").unwrap();
    swept("recordings").success();
    let table = fs::read_to_string(&out).unwrap();
    assert!(table.contains("\nstep,,pytorch,default,1TiB,"), "{table}");
    fs::remove_file(&out).unwrap();
    swept("mine.pickle.xz").failure(1, &["a snapshot", "coalesce convert", "mine.pickle.xz"]);
}

/// One of two cells fails. The other is kept, so that it is not measured again.
#[test]
fn completed_cells_are_kept_when_others_fail() {
    let folder = scratch_folder("sweep_failing");
    let trace = "op,id,bytes,stream,tag\nalloc,1,184467440731615,0,a\n";
    fs::write(folder.join("large.csv"), trace).unwrap();
    let sweep = folder.join("sweep.toml");
    let with = |capacities: &str| {
        let text = format!(
            "[settings]\ndefault = \"\"\n[[workload]]\ntraces = \"large.csv\"\n[[run]]\ncapacities = [{capacities}]\n"
        );
        fs::write(&sweep, text).unwrap();
    };
    with("\"least\", \"1TiB\"");
    let out = folder.join("out.csv");
    let failed = "1 cells failed; the completed cells are kept for the next run:\n  large, pytorch, default, least, up";
    let first = run(&sweep, &out, &[]);
    assert!(!first.err.contains("already done"), "{}", first.err);
    first.failure(1, &[failed]);
    let journal = fs::read_to_string(folder.join("out.csv.journal")).unwrap();
    assert_eq!(journal.lines().count(), 3, "{journal}");
    run(&sweep, &out, &[]).failure(1, &["coalesce: 1 cells are already done\n", failed]);
    let quiet = run(&sweep, &out, &["--quiet"]);
    assert!(!quiet.err.contains("already done"), "{}", quiet.err);
    assert_eq!(
        fs::read_to_string(folder.join("out.csv.journal")).unwrap(),
        journal
    );
    assert!(!out.exists());
    let printed = coalesce(&["sweep", text(&sweep), "--out", "-"], "", &[]);
    printed.failure(1, &["1 cells failed; nothing is printed:\n  large, "]);

    with("\"1TiB\", \"2TiB\"");
    fs::remove_file(folder.join("out.csv.journal")).unwrap();
    let ended = run(&sweep, &out, &[]);
    assert_eq!(
        ended.err,
        format!("coalesce: 2 rows in {}\n", out.display())
    );
    let merged = folder.join("merged.csv");
    let ended = coalesce(&["merge", text(&out), "--out", text(&merged)], "", &[]);
    assert_eq!(
        ended.err,
        format!("coalesce: 2 rows in {}\n", merged.display())
    );
    let whole = fs::read_to_string(&out).unwrap();
    assert_eq!(fs::read_to_string(&merged).unwrap(), whole);
    let printed = coalesce(&["sweep", text(&sweep), "--out", "-"], "", &[]);
    assert_eq!(printed.success(), whole);
}
