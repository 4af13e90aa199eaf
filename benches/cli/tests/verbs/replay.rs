//! `coalesce replay`.

use serde_json::Value;

use crate::{checkout, coalesce, scratch, trace};

fn json(arguments: &[&str]) -> Value {
    let arguments = [&["replay", "--json"], arguments].concat();
    serde_json::from_str(&coalesce(&arguments, "", &[]).success()).unwrap()
}

/// The figures equal those of PyTorch for this trace and setting, in `workloads/traces/expected.csv`.
#[test]
fn a_trace_gives_the_figures_of_the_real_allocator() {
    let (name, conf) = ("bert_base_fixed512_amp", "expandable_segments:True");
    let mut expected =
        csv::Reader::from_path(checkout().join("workloads/traces/expected.csv")).unwrap();
    let columns = expected.headers().unwrap().clone();
    let mut rows = expected.records().map(Result::unwrap);
    let row = rows.find(|row| (&row[0], &row[1]) == (name, conf)).unwrap();
    let report = json(&[&trace(name), "--conf", conf, "--capacity", &row[2]]);
    let mut compared = 0;
    for (column, field) in columns.iter().zip(&row) {
        if let Some(figure) = report.get(column).and_then(Value::as_u64) {
            assert_eq!(figure.to_string(), field, "{column}");
            compared += 1;
        }
    }
    assert_eq!(compared, 13);
    for key in ["events", "peak_requested_bytes", "ooms", "device_frees"] {
        assert!(report[key].is_u64(), "{key}");
    }
}

#[test]
fn a_plain_trace_with_a_failing_request() {
    let path = scratch(
        "own.csv",
        "op,id,bytes,stream,tag\nalloc,1,1000,0,mm\nalloc,2,9000000,0,addmm\nfree,1,1000,0,\n",
    );
    let path = path.to_str().unwrap();
    let report = json(&[path, "--capacity", "4MiB"]);
    assert_eq!(report["workload"], "own");
    assert_eq!(report["ooms"], 1);
    assert_eq!(report["first_oom"]["event"], 1);
    assert_eq!(report["first_oom"]["tag"], "addmm");
    let text = coalesce(&["replay", path, "--capacity", "4MiB"], "", &[]).success();
    for words in ["3 events", "peak reserved", "2.0 MiB", "8.6 MiB for addmm"] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

#[test]
fn the_readme_shows_the_output() {
    let arguments = [
        "replay",
        &trace("gpt2_small_amp_foreach"),
        "--conf",
        "max_split_size_mb:128",
    ];
    let text = coalesce(&arguments, "", &[]).success();
    let readme = std::fs::read_to_string(checkout().join("README.md")).unwrap();
    assert!(readme.contains(&text), "not in the README: {text}");
}

/// A replay with failed requests has no efficiency, even if PyTorch rejects the request without counting it.
#[test]
fn a_replay_with_failures_has_no_efficiency() {
    let absurd = format!(
        "op,id,bytes,stream,tag\nalloc,1,8,0,\nalloc,2,{},0,mm\n",
        1_u64 << 61
    );
    let path = scratch("absurd.csv", absurd);
    let path = path.to_str().unwrap();
    let report = json(&[path]);
    assert_eq!(
        (&report["ooms"], &report["efficiency"]),
        (&1.into(), &Value::Null)
    );
    let text = coalesce(&["replay", path], "", &[]).success();
    assert!(text.contains("no value: requests failed"), "{text}");
    assert!(!text.contains('%'), "{text}");
}

#[test]
fn invalid_replays_are_rejected_with_a_reason() {
    let good = &trace("example_interleaved_free");
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        coalesce(&[&["replay"], arguments].concat(), "", &[]).failure(code, words);
    };
    refused(&["none.csv"], 1, &["none.csv", "no such file"]);
    refused(&[good, "--policy", "best"], 2, &["'best'", "pytorch"]);
    refused(&[good, "--conf", "max_split"], 1, &["max_split"]);
    refused(&[good, "--capacity", "80GX"], 2, &["80GX", "80GiB"]);
    refused(
        &[good, "--capacity", "80"],
        2,
        &["80 bytes?", "80GiB", "80B"],
    );
    refused(&["llama2_7b_chat.pickle"], 1, &["no such file"]);
    refused(&["nosuch"], 1, &["neither a file nor a preset or family"]);
    refused(&[good, "--addresses", "left"], 2, &["left", "firstfit"]);
    let twice = scratch(
        "twice.csv",
        "op,id,bytes,stream,tag\nalloc,1,8,0,\nalloc,1,8,0,\n",
    );
    let twice = twice.to_str().unwrap();
    refused(&[twice], 1, &["twice.csv, line 3", "id 1 is already live"]);
    let packed = std::fs::read(good).unwrap();
    let half = scratch("half.csv.gz", &packed[..packed.len() / 2]);
    let half = half.to_str().unwrap();
    refused(
        &[half],
        1,
        &["half.csv.gz, line", "incomplete deflate stream"],
    );
}

/// A million events fit in 40 MB of address space, including the program: events are not kept in memory.
#[cfg(target_os = "linux")]
#[test]
fn a_long_trace_is_streamed() {
    const LIVE: u64 = 100;
    let mut text = String::from("op,id,bytes,stream,tag\n");
    for id in 0..500_000 {
        text.push_str(&format!("alloc,{id},{},0,mm\n", 1000 + id % 7));
        if let Some(old) = u64::checked_sub(id, LIVE) {
            text.push_str(&format!("free,{old},{},0,\n", 1000 + old % 7));
        }
    }
    let path = scratch("long.csv", text);
    let program = env!("CARGO_BIN_EXE_coalesce");
    let command = "ulimit -v 40000 && exec \"$0\" replay --json \"$1\"";
    let output = std::process::Command::new("sh")
        .args(["-c", command, program])
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(path).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!(report["allocations"], 500_000);
    assert_eq!(report["events"], 999_900);
}
