//! Standard input and output in place of files, and what is printed on standard error.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use coalesce_workloads::formats::compression::gzip;

use crate::{checkout, coalesce, recorded, run, scratch, scratch_folder, trace};

const TRACE: &str =
    "op,id,bytes,stream,tag\nalloc,0,3000000,0,a\nalloc,1,1000,0,b\nfree,0,3000000,0,\n";
const INSTANCE: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\n";
const SWEEP: &str = "[settings]\ndefault = \"\"\n[[workload]]\npresets = [\"churn\"]\n[[run]]\n";
const PROFILE: &str = "source = \"none\"\n[calls]\nmalloc = { ns = 7 }\n";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_coalesce"))
}

#[test]
fn every_verb_reads_standard_input() {
    let trace = scratch("streams.csv", TRACE);
    let trace = trace.to_str().unwrap();
    let table = fs::read_to_string(recorded("default.csv")).unwrap();
    for (arguments, input, words) in [
        (
            &["replay", "-"][..],
            TRACE,
            "standard input: 3 events, 2 allocations",
        ),
        (
            &["replay", trace, "--profile", "-"],
            PROFILE,
            "streams: 3 events",
        ),
        (&["advise", "-", "--time-limit", "0"], TRACE, "completes"),
        (&["diagnose", "-"], TRACE, "the default settings"),
        (&["diff", "-", trace], TRACE, "A: standard input"),
        (&["diff", trace, "-"], TRACE, "B: standard input"),
        (
            &["convert", "-", "-", "--to", "minimalloc"],
            TRACE,
            "id,lower,upper,size\n0,0,2,",
        ),
        (
            &[
                "bench",
                "-",
                "--policy",
                "direct",
                "--device",
                "sim",
                "--seconds",
                "0",
            ],
            TRACE,
            "direct",
        ),
        (
            &["place", "-", "--steps", "10"],
            INSTANCE,
            "standard input: 3 buffers",
        ),
        (
            &["sweep", "-", "--list"],
            SWEEP,
            "churn, pytorch, default, 1TiB, up, 2.15\n",
        ),
        (&["summary", "-"], &table, "Compared with pytorch/default"),
        (&["report", "-"], &table, "gpt2"),
        (
            &["compare", "-", recorded("default.csv").to_str().unwrap()],
            &table,
            "0 figures changed",
        ),
    ] {
        let text = coalesce(arguments, input, &[]).success();
        assert!(
            text.contains(words),
            "{arguments:?}: no '{words}' in: {text}"
        );
    }
    let ended = coalesce(&["verify", "-"], TRACE, &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.out.contains("standard input"), "{}", ended.out);
    assert!(ended.out.contains("unreadable"), "{}", ended.out);
    coalesce(&["replay", "-"], "nothing", &[]).failure(1, &["standard input, line 1: not a trace"]);
    coalesce(&["compare", "-", "-"], &table, &[]).failure(
        2,
        &["standard input: named twice, but it can be read only once"],
    );
    coalesce(&["replay", "./-"], TRACE, &[]).failure(1, &["./-: no such file"]);
}

#[test]
fn every_verb_writes_to_standard_output() {
    let folder = scratch_folder("streams_out");
    let out = |arguments: &[&str], input: &str| {
        let mut command = program();
        run(command.args(arguments).current_dir(&folder), input, &[]).success()
    };
    let table = out(&["sweep", "-", "--out", "-", "--partition", "1/1"], SWEEP);
    assert!(table.starts_with("workload,"), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    assert_eq!(out(&["merge", "-", "--out", "-"], &table), table);
    let placed = out(&["place", "-", "--out", "-", "--steps", "10"], INSTANCE);
    assert!(
        placed.starts_with("id,lower,upper,size,offset\n"),
        "{placed}"
    );
    let arguments = ["advise", "-", "--html", "-", "--time-limit", "0"];
    let page = out(&arguments, TRACE);
    assert!(page.starts_with("<!doctype html>"), "{page}");
    let markdown = "<!-- table efficiency: -->\n<!-- end -->\n";
    let results = checkout().join("results");
    let mut command = program();
    command
        .args(["report", "--splice", "-"])
        .current_dir(&results);
    let spliced = run(&mut command, markdown, &[]).success();
    assert!(spliced.contains("| gpt2"), "{spliced}");
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        0,
        "a file called '-'"
    );

    for (arguments, words) in [
        (
            &["place", "-", "--out", "-", "--json"][..],
            "both go to standard output",
        ),
        (
            &["advise", "-", "--html", "-", "--json"],
            "both go to standard output",
        ),
        (
            &["realism", "--splice", "-", "--json"],
            "both go to standard output",
        ),
    ] {
        coalesce(arguments, TRACE, &[]).failure(1, &[words]);
    }
    coalesce(&["plot", "a.toml", "b.csv", "--out", "-"], "", &[])
        .failure(2, &["expected a folder, not standard output"]);
}

/// A pipe can be read once, but a trace is read several times.
#[cfg(unix)]
#[test]
fn pipes_are_read() {
    let packed = scratch("streams.csv.gz", gzip(TRACE.as_bytes()).unwrap());
    let script = format!(
        "{0} replay <(cat {1}) && {0} replay /dev/stdin < <(cat {1}) && cat {1} | {0} advise - --time-limit 0 && \
         {0} convert churn - --to snapshot | {0} verify -",
        env!("CARGO_BIN_EXE_coalesce"),
        packed.display()
    );
    let mut command = Command::new("bash");
    let text = run(command.args(["-c", &script]), "", &[]).success();
    assert_eq!(text.matches("3 events, 2 allocations").count(), 3, "{text}");
    assert!(text.contains("equal  exact\n"), "{text}");
}

#[test]
fn outputs_are_compressed_with_gzip_only() {
    let out = scratch_folder("streams_packed").join("out.csv.xz");
    let out = out.to_str().unwrap();
    coalesce(&["convert", "-", out], TRACE, &[])
        .failure(1, &["cannot write .xz; end the name with .gz"]);
}

#[test]
fn quiet_is_quiet() {
    let table = coalesce(&["sweep", "-", "--out", "-"], SWEEP, &[]).success();
    let out = scratch_folder("streams_quiet").join("joined.csv");
    let merge = ["merge", "-", "--out", out.to_str().unwrap()];
    let loud = coalesce(&merge, &table, &[]);
    assert!(loud.err.starts_with("coalesce: 1 rows in "), "{}", loud.err);
    for flag in ["-q", "--quiet"] {
        for arguments in [
            [&[flag], &merge[..]].concat(),
            [&merge[..], &[flag]].concat(),
        ] {
            let ended = coalesce(&arguments, &table, &[]);
            assert_eq!(ended.err, "", "{arguments:?}");
            ended.success();
        }
    }
    let later = ["replay", "churn", "--torch", "2.99"];
    let ended = coalesce(&later, "", &[]);
    assert!(
        ended.err.contains("follows the rules of 2."),
        "{}",
        ended.err
    );
    assert_eq!(coalesce(&[&later[..], &["-q"]].concat(), "", &[]).err, "");
    coalesce(&["-q", "replay", "nosuch"], "", &[]).failure(1, &["'nosuch' is neither"]);
    // This flag is that of the oracle.
    let script =
        |flag: &[&str]| coalesce(&[&["script"], flag].concat(), "a x 1000\n", &[]).success();
    assert!(script(&["--quiet"]).lines().count() < script(&[]).lines().count());
}

#[test]
fn colours_follow_the_flag_and_the_environment() {
    let trace = scratch("colours.csv", TRACE);
    let trace = trace.to_str().unwrap();
    let table = fs::read_to_string(recorded("default.csv")).unwrap();
    let first = table.lines().nth(1).unwrap().split(',').next().unwrap();
    let worse = scratch("colours_worse.csv", table.replacen(first, "another", 1));
    let compare = ["compare", "-", worse.to_str().unwrap()];
    let force = ("CLICOLOR_FORCE", "1");
    for (flags, variables, is_coloured) in [
        (&[][..], &[][..], false),
        (&["--color", "always"], &[], true),
        (&["--color=always"], &[("NO_COLOR", "1")], true),
        (&[], &[force], true),
        (&["--color", "auto"], &[force], true),
        (&["--color", "never"], &[force], false),
        (&[], &[force, ("NO_COLOR", "1")], false),
    ] {
        let ended = |arguments: &[&str]| coalesce(&[arguments, flags].concat(), &table, variables);
        let advise = ["advise", trace, "--time-limit", "0"];
        for (text, escape) in [
            (ended(&compare).out, "\x1b[31mGONE"),
            (
                ended(&["replay", "nosuch"]).err,
                "\x1b[1m\x1b[31mcoalesce:\x1b[0m ",
            ),
            (ended(&["replya"]).err, "\x1b[1m\x1b[31merror:"),
            (ended(&["--help"]).out, "\x1b[1m"),
            (ended(&advise).out, "\x1b[1m"),
        ] {
            assert_eq!(
                text.contains(escape),
                is_coloured,
                "{flags:?} {variables:?}: {text:?}"
            );
            assert_eq!(
                text.contains('\x1b'),
                is_coloured,
                "{flags:?} {variables:?}: {text:?}"
            );
        }
        assert!(!ended(&["replay", trace, "--json"]).out.contains('\x1b'));
    }
    coalesce(&["policies", "--color", "often"], "", &[]).failure(2, &["auto, always, never"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["convert", "churn", "--to", "trace"][..],
        &["policies"],
        &["compare", "-", "-"],
    ] {
        let child = program()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(full())
            .output()
            .unwrap();
        let error = String::from_utf8(child.stderr).unwrap();
        assert_ne!(child.status.code(), Some(0), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    let sweep = ["sweep", "-", "--out", "/dev/full"];
    coalesce(&sweep, SWEEP, &[]).failure(1, &["cannot write /dev/full", "No space left"]);
    assert!(!Path::new("/dev/full.journal").exists());
    let convert = ["convert", "churn", "/dev/full", "--to", "trace"];
    coalesce(&convert, "", &[]).failure(1, &["cannot write /dev/full", "No space left"]);
}

#[test]
fn misspelt_names_suggest_the_nearest() {
    let sweep = |text: &str| SWEEP.replace("[[run]]\n", &format!("[[run]]\n{text}\n"));
    for (arguments, input, code, name) in [
        (
            &["replay", "-", "--policy", "pytroch"][..],
            "",
            2,
            "pytorch",
        ),
        (
            &["replay", "-", "--addresses", "frstfit"],
            "",
            2,
            "firstfit",
        ),
        (&["convert", "-", "--to", "trce"], "", 2, "trace"),
        (
            &["advise", "-", "--for", "least-capcity"],
            "",
            2,
            "least-capacity",
        ),
        (
            &["diagnose", "-", "--fail-on", "grdients"],
            "",
            2,
            "gradients",
        ),
        (&["replay", "chrun"], "", 1, "churn"),
        (&["workloads", "fragmentaton"], "", 1, "fragmentation"),
        (&["workloads", "chrun"], "", 1, "churn"),
        (
            &["sweep", "-", "--list"],
            &sweep("polices = []"),
            1,
            "policies",
        ),
        (
            &["sweep", "-", "--list"],
            &sweep("policies = [\"pytroch\"]"),
            1,
            "pytorch",
        ),
        (
            &["sweep", "-", "--list"],
            &sweep("settings = [\"defualt\"]"),
            1,
            "default",
        ),
        (
            &["sweep", "-", "--list"],
            &sweep("").replace("churn", "chrun"),
            1,
            "churn",
        ),
        (
            &["sweep", "-", "--list"],
            &sweep("").replace("\"\"", "\"max_splt_size_mb:20\""),
            1,
            "max_split_size_mb",
        ),
        (
            &["replay", "churn", "--profile", "-"],
            "source = ''\n[call]\n",
            1,
            "calls",
        ),
    ] {
        let ended = coalesce(arguments, input, &[]);
        let words = [
            format!("did you mean '{name}'?"),
            format!("similar value exists: '{name}'"),
        ];
        let is_suggested = words.iter().any(|words| ended.err.contains(words));
        assert!(is_suggested, "{arguments:?}: no '{name}' in: {}", ended.err);
        ended.failure(code, &[]);
    }
    coalesce(&["convert", "churn", "--torch", "2.99"], "", &[])
        .failure(2, &["not reproduced; expected a release from 2.6 to"]);
}

/// Without a time limit, the advice does not depend on the machine.
#[test]
fn advice_does_not_depend_on_the_number_of_threads() {
    let advise = |jobs: &str| {
        let file = trace("resnet50_fp32_fixed224");
        let arguments = ["advise", &file, "--time-limit", "0", "-j", jobs];
        let text = coalesce(&arguments, "", &[]).success();
        // The last lines say how long it took.
        text.lines()
            .filter(|line| !line.contains(" s"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(advise("1"), advise("5"));
    coalesce(&["advise", "churn", "-j", "0"], "", &[]).failure(2, &["invalid value '0'"]);
}
