//! `coalesce convert`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{checkout, coalesce, scratch, scratch_folder, trace};

fn fixture(name: &str) -> String {
    let folder = checkout().join("workloads/tests/fixtures");
    folder.join(name).to_str().unwrap().to_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A trace with all kinds of operations.
fn program() -> PathBuf {
    scratch(
        "converted.csv",
        "op,id,bytes,stream,tag\nmark,-1,0,0,step 0\nalloc,7,1000,0,mm\nalloc,8,5,2,add\n\
         mark,8,0,1,record_stream\nfree,7,1000,0,\nalloc,7,512,0,\nfree,8,5,2,\n",
    )
}

/// Each malloc becomes a line with its events, in multiples of 512 bytes.
#[test]
fn a_trace_becomes_an_instance() {
    let path = scratch(
        "program.csv",
        "op,id,bytes,stream,tag\nmark,-1,0,0,init\nalloc,5,1000,0,mm\nalloc,6,0,0,mm\n\
         alloc,7,512,0,mm\nfree,5,1000,0,\nalloc,5,1,0,mm\n",
    );
    let path = path.to_str().unwrap();
    let text = coalesce(&["convert", path, "--to", "minimalloc"], "", &[]).success();
    assert_eq!(
        text,
        "id,lower,upper,size\n0,0,2,1024\n1,1,4,512\n2,3,5,512\n"
    );
    let arguments = ["convert", path, "--to", "minimalloc", "--unit", "1"];
    let text = coalesce(&arguments, "", &[]).success();
    assert!(
        text.ends_with("\n0,0,2,1000\n1,1,4,512\n2,3,5,1\n"),
        "{text}"
    );
}

#[test]
fn a_trace_converts_to_itself() {
    let original = program();
    let text = coalesce(&["convert", path(&original), "--to", "trace"], "", &[]).success();
    let (header, rest) = text.split_once('\n').unwrap();
    assert_eq!(header, "# {\"name\":\"converted\"}");
    assert_eq!(rest, fs::read_to_string(&original).unwrap());
}

#[test]
fn a_binary_trace_is_written_and_read() {
    let original = program();
    let folder = scratch_folder("binary");
    for name in ["converted.trace", "converted.trace.gz"] {
        let packed = folder.join(name);
        coalesce(&["convert", path(&original), path(&packed)], "", &[]).success();
        let text = coalesce(&["convert", path(&packed), "--to", "trace"], "", &[]).success();
        let (_, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, fs::read_to_string(&original).unwrap());
        let replayed = |file: &Path| coalesce(&["replay", path(file), "--json"], "", &[]).success();
        assert_eq!(replayed(&packed), replayed(&original));
    }
}

/// A replay of a trace of a snapshot, in either form, prints what a replay of the snapshot prints, but for remarks.
#[test]
fn a_trace_of_a_snapshot_replays_with_the_same_figures() {
    let folder = scratch_folder("same_figures");
    let replayed = |file: &str, more: &[&str]| {
        let text = coalesce(&[&["replay", file, "--json"], more].concat(), "", &[]).success();
        let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let columns = report.as_object_mut().unwrap();
        for column in ["workload", "coverage", "missing", "remarks"] {
            columns.remove(column);
        }
        assert!(columns.contains_key("peak_reserved_bytes"));
        report
    };
    let snapshots = [
        "workloads/tests/fixtures/torch-cpp.pickle",
        "workloads/tests/fixtures/later.pickle",
        "workloads/tests/h200/compile_cudagraphs.pickle.xz",
        "benches/advisor/tests/holders/late.pickle.gz",
        "benches/advisor/tests/holders/oom.pickle.gz",
    ];
    let flags: [&[&str]; 4] = [
        &[],
        &["--conf", "expandable_segments:True"],
        &["--policy", "gmlake"],
        &["--capacity", "4GiB", "--torch", "2.15"],
    ];
    for snapshot in snapshots {
        let snapshot = checkout().join(snapshot);
        for name in ["trace.csv", "trace.trace"] {
            let trace = folder.join(name);
            coalesce(&["convert", path(&snapshot), path(&trace)], "", &[]).success();
            for flags in flags {
                let expected = replayed(path(&snapshot), flags);
                let what = format!("{}, {name}, {flags:?}", snapshot.display());
                assert_eq!(replayed(path(&trace), flags), expected, "{what}");
            }
            let again = folder.join("again.csv");
            let first = folder.join("first.csv");
            coalesce(&["convert", path(&trace), path(&again)], "", &[]).success();
            coalesce(&["convert", path(&snapshot), path(&first)], "", &[]).success();
            let lines = |file: &Path| {
                fs::read_to_string(file)
                    .unwrap()
                    .split_once('\n')
                    .unwrap()
                    .1
                    .to_owned()
            };
            assert_eq!(lines(&again), lines(&first), "{}", snapshot.display());
        }
    }
}

/// All devices of a snapshot are in its trace, and each replays as in the snapshot; a single one can be asked for.
#[test]
fn a_trace_of_several_devices_replays_each() {
    let folder = scratch_folder("several_devices");
    let snapshot = fixture("protocol-4.pickle");
    let replayed = |file: &str, more: &[&str]| {
        let text = coalesce(&[&["replay", file, "--json"], more].concat(), "", &[]).success();
        let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
        for column in ["workload", "coverage", "missing", "remarks"] {
            report.as_object_mut().unwrap().remove(column);
        }
        report
    };
    for name in ["all.csv.gz", "all.trace"] {
        let all = folder.join(name);
        coalesce(&["convert", &snapshot, path(&all)], "", &[]).success();
        for device in [
            &[][..],
            &["--recorded-device", "0"],
            &["--recorded-device", "1"],
        ] {
            for policy in [&[][..], &["--policy", "gmlake"], &["--capacity", "4GiB"]] {
                let flags = [device, policy].concat();
                let expected = replayed(&snapshot, &flags);
                assert_eq!(replayed(path(&all), &flags), expected, "{name}, {flags:?}");
            }
        }
        let lacking = ["replay", path(&all), "--recorded-device", "7"];
        coalesce(&lacking, "", &[]).failure(1, &["no device 7, only 0, 1"]);
        // One device of the trace is what one of the snapshot is.
        for number in ["0", "1"] {
            let one = |file: &str| {
                let flags = [
                    "convert",
                    file,
                    "--to",
                    "trace",
                    "--recorded-device",
                    number,
                ];
                let text = coalesce(&flags, "", &[]).success();
                let (header, events) = text.split_once('\n').unwrap();
                assert!(!header.contains('['), "{header}");
                events.to_owned()
            };
            assert_eq!(one(path(&all)), one(&snapshot));
        }
        // And a trace of all becomes itself.
        let again = folder.join(format!("again_{name}"));
        coalesce(&["convert", path(&all), path(&again)], "", &[]).success();
        let text = |file: &Path| {
            let text = coalesce(&["convert", path(file), "--to", "trace"], "", &[]).success();
            text.split_once('\n').unwrap().1.to_owned()
        };
        assert_eq!(text(&again), text(&all));
        coalesce(&["convert", path(&all), "--to", "rmm"], "", &[]).success();
    }
}

#[test]
fn an_rmm_log_is_written_and_read() {
    let original = program();
    let log = scratch_folder("rmm").join("program.log.gz");
    coalesce(&["convert", path(&original), path(&log)], "", &[]).success();
    assert!(fs::read(&log).unwrap().starts_with(&[0x1f, 0x8b]));
    let text = coalesce(&["convert", path(&log), "--to", "trace"], "", &[]).success();
    let expected = "# {\"name\":\"program\"}\nop,id,bytes,stream,tag\nalloc,0,1000,0,\n\
                    alloc,1,5,1,\nfree,0,1000,0,\nalloc,2,512,0,\nfree,1,5,1,\n";
    assert_eq!(text, expected);
    let text = coalesce(&["convert", path(&original), "--to", "rmm"], "", &[]).success();
    let expected = "Thread,Time,Action,Pointer,Size,Stream\n\
                    1,00:00:00.000000,allocate,0x7f0000000000,1000,0\n\
                    1,00:00:00.000001,allocate,0x7f0000000100,5,200\n\
                    1,00:00:00.000002,free,0x7f0000000000,1000,0\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn logs_written_by_rmm_are_read() {
    let log = scratch(
        "rmm.txt",
        "Thread,Time,Action,Pointer,Size,Stream\n17,09:31:07.123456,allocate,0x7f12,100,0\n\
         17,09:31:07.123457,allocate,(nil),0,0\n17,09:31:08:1,allocate failure,(nil),999,0x2\n\
         18,09:31:08:2,allocate,7f20,8,0x1\n18,09:31:08:3,allocate,7f30,9,0x2\n\
         17,09:31:08:4,free,(nil),0,0\n18,09:31:09,free,0x7f12,100,0\n",
    );
    let text = coalesce(&["convert", path(&log), "--to", "trace"], "", &[]).success();
    let (_, events) = text.split_once("tag\n").unwrap();
    let expected = "alloc,0,100,0,\nalloc,1,8,0,\nalloc,2,9,1,\nfree,0,100,0,\n";
    assert_eq!(events, expected);
    let wrong = |line: &str, words: &[&str]| {
        let log = scratch(
            "wrong.log",
            format!("Thread,Time,Action,Pointer,Size,Stream\n{line}\n"),
        );
        coalesce(&["convert", path(&log), "--to", "trace"], "", &[]).failure(1, words);
    };
    wrong(
        "1,0,free,0x1,5,0",
        &["wrong.log, line 2", "free of 0x1, which is not live"],
    );
    wrong("1,0,malloc,0x1,5,0", &["line 2", "unknown action 'malloc'"]);
    wrong("1,0,free,0x1,5", &["line 2", "5 fields instead of the 6"]);
    wrong(
        "1,0,allocate,xyz,5,0",
        &["pointer 'xyz' is not a hexadecimal"],
    );
    wrong("1,0,allocate,0x1,-5,0", &["size '-5' is not a number"]);
}

/// A buffer lives from its lower time to just before its upper time.
#[test]
fn an_instance_becomes_a_trace() {
    let instance = scratch(
        "instance.csv",
        "id,lower,upper,size\na,0,5,4\nb,5,9,8\nc,1,5,2\n",
    );
    let text = coalesce(&["convert", path(&instance), "--to", "trace"], "", &[]).success();
    let (_, events) = text.split_once("tag\n").unwrap();
    let expected = "alloc,0,4,0,a\nalloc,2,2,0,c\nfree,0,4,0,\nfree,2,2,0,\nalloc,1,8,0,b\n\
                    free,1,8,0,\n";
    assert_eq!(events, expected);
}

/// A workload converts to a snapshot and back.
#[test]
fn a_snapshot_is_written_and_read() {
    let folder = scratch_folder("snapshots");
    let original = trace("example_interleaved_free");
    let log = |from: &str| coalesce(&["convert", from, "--to", "rmm"], "", &[]).success();
    for policy in ["pytorch", "direct", "bfc", "gmlake"] {
        let snapshot = folder.join(format!("{policy}.pickle.gz"));
        let arguments = ["convert", &original, path(&snapshot), "--policy", policy];
        coalesce(&arguments, "", &[]).success();
        if policy == "pytorch" {
            assert_eq!(log(path(&snapshot)), log(&original));
        }
        let recordings = coalesce_workloads::formats::snapshot::read(&snapshot).unwrap();
        let [recording] = &recordings[..] else {
            panic!("{policy}: {} devices", recordings.len());
        };
        assert_eq!(recording.remarks, [""; 0]);
        let reserved: u64 = recording.segments.iter().map(|one| one.total_size()).sum();
        let mut held = 0;
        for entry in &recording.entries {
            match entry.action {
                action if action.takes_memory() => held += entry.size,
                action if action.returns_memory() => held -= entry.size,
                _ => {}
            }
        }
        assert_eq!(held, reserved, "{policy}");
    }
}

#[test]
fn a_snapshot_is_replayed() {
    let snapshot = fixture("torch-cpp.pickle");
    let text = coalesce(&["replay", &snapshot, "--json"], "", &[]).success();
    for words in ["\"workload\": \"torch-cpp\"", "\"ooms\": 1,"] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

/// Policies split, round and coalesce unlike PyTorch, so their recordings cannot be rewound.
#[test]
fn snapshots_of_other_policies_are_replayed_from_their_requests() {
    let folder = scratch_folder("convert_policies");
    let trace = folder.join("program.csv");
    coalesce(&["convert", "grad_accumulation", path(&trace)], "", &[]).success();
    let reserved = |workload: &str| {
        let text = coalesce(&["replay", workload, "--json"], "", &[]).success();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        report["peak_reserved_bytes"].as_u64().unwrap()
    };
    let expected = reserved(path(&trace));
    for policy in ["bfc", "buddy", "gmlake", "offline"] {
        let snapshot = folder.join(format!("{policy}.pickle"));
        let arguments = ["convert", path(&trace), path(&snapshot), "--policy", policy];
        coalesce(&arguments, "", &[]).success();
        assert_eq!(reserved(path(&snapshot)), expected, "{policy}");
    }
}

#[test]
fn invalid_conversions_are_rejected_with_a_reason() {
    let convert = |arguments: &[&str], code: i32, words: &[&str]| {
        coalesce(&[&["convert"], arguments].concat(), "", &[]).failure(code, words);
    };
    let trace = &trace("example_interleaved_free");
    convert(&[trace], 1, &["unknown output format", "--to"]);
    convert(
        &[trace, "out.bin"],
        1,
        &["unknown output format", ".pickle"],
    );
    convert(&[trace, "--to", "csv"], 2, &["'csv'", "minimalloc"]);
    convert(
        &[trace, "--to", "minimalloc", "--unit", "0"],
        2,
        &["--unit"],
    );
    convert(
        &["none.csv", "--to", "minimalloc"],
        1,
        &["none.csv", "no such file"],
    );
    convert(
        &["churm", "--to", "minimalloc"],
        1,
        &["'churm' is neither a file"],
    );
    let wrong = scratch("wrong_trace.csv", "id,lower,upper\na,0,1\n");
    convert(
        &[path(&wrong), "--to", "rmm"],
        1,
        &["wrong_trace.csv, line 1", "not a trace"],
    );
    let snapshot = fixture("protocol-4.pickle");
    convert(
        &[&snapshot, "--to", "rmm", "--recorded-device", "7"],
        1,
        &["no device 7", "0, 1"],
    );
    let global = scratch("global.pickle", b"\x80\x04cos\nsystem\n.");
    convert(
        &[path(&global), "--to", "rmm"],
        1,
        &["global.pickle, byte 2", "refuses GLOBAL 'os.system'"],
    );
    let conf = ["--to", "snapshot", "--conf", "max_split_size_mb:1"];
    convert(&[&[&trace[..]], &conf[..]].concat(), 1, &["max_split_size"]);
}
