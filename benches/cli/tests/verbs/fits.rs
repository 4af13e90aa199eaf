//! `coalesce fits`, with a shell script in the place of a PyTorch program. `scripts/fits/check.py` runs PyTorch itself.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use super::{Ended, coalesce, scratch_folder};

/// Reports what `watch.py` would. It needs NEED MiB, or 100 MiB for each of BATCH, or with expandable segments 100 MiB less.
const PROGRAM: &str = r#"#!/bin/sh
[ -f "${PYTHONPATH%%:*}/sitecustomize.py" ] || { echo "no sitecustomize"; exit 9; }
available=$(((FAKE_TOTAL_BYTES - FAKE_FOREIGN_BYTES) >> 20))
need=${NEED:-$((${BATCH:-$1} * 100))}
case $PYTORCH_CUDA_ALLOC_CONF in *expandable*) need=$((need - 100)) ;; esac
ooms=0 ended=repeats reserved=$need
[ "$need" -le "$available" ] || { ooms=1 ended=out_of_memory reserved=$available; }
cp "$RECORDING" "$COALESCE_FITS_FOLDER/1.pickle" || exit 9
cat > "$COALESCE_FITS_FOLDER/1.json" <<END
{"torch": "2.11.0", "ended": "${ENDED:-$ended}", "short_epochs": ${SHORT:-0}, "steps": 4, "ooms": $ooms,
 "peak_requested_bytes": $((reserved << 20)), "peak_reserved_bytes": $((reserved << 20)),
 "values": [{"line": "train.py:9", "times": 3}], "shapes": [{"line": "model.py:7", "times": 1}],
 "convolutions": []}
END
echo "last words"
eval "$LAST"
"#;

fn program(name: &str) -> PathBuf {
    let path = scratch_folder(name).join("train");
    fs::write(&path, PROGRAM).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A program that requests at most 200 MiB. By default it needs 360 MiB, because a block in the middle keeps a segment of
/// 200 MiB; with expandable segments the memory beside that block serves the last request.
fn recording(name: &str) -> String {
    let mut text = "op,id,bytes,stream,tag\n".to_owned();
    let mut write = |op: &str, id: u32, mib: u64| text += &format!("{op},{id},{},0,\n", mib << 20);
    write("alloc", 0, 200);
    write("free", 0, 200);
    (1..=6).for_each(|id| write("alloc", id, 30));
    for id in [1, 2, 3, 5, 6] {
        write("free", id, 30);
    }
    write("alloc", 7, 160);
    let path = scratch_folder(&format!("{name}-recording")).join("trace.csv");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs the program `name`, which writes that recording.
fn fits(name: &str, flags: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let path = program(name);
    let command = ["--", path.to_str().unwrap()];
    let all = [&["fits"], flags, &command, arguments].concat();
    let recording = recording(name);
    let variables = [&[("RECORDING", &recording[..])], variables].concat();
    coalesce(&all, "", &variables)
}

#[test]
fn a_program_that_fits_says_how_much_is_left() {
    let ended = fits("fits-well", &["--memory", "2GiB"], &[], &[("NEED", "1024")]);
    let text = ended.success();
    let first = "The program fits: it reserves 1.00 GiB at its peak, and 512.0 MiB of the 1.50 GiB available remain free.\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("large enough    T4, "), "{text}");
    assert!(text.contains("  train.py:9, 3 times\n"), "{text}");
    assert!(text.contains("  model.py:7, once\n"), "{text}");
}

#[test]
fn a_setting_that_helps_is_tried_by_the_program_itself() {
    let flags = ["--memory", "812MiB", "--json"];
    let json = |need: &str| {
        let ended = fits("fits-with", &flags, &[], &[("NEED", need)]);
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        serde_json::from_str::<Value>(&ended.out).unwrap()
    };
    let helped = json("310");
    assert_eq!(helped["verdict"]["kind"], "fits_with");
    assert_eq!(helped["verdict"]["conf"], "expandable_segments:True");
    assert_eq!(helped["peak_reserved_bytes"], 210_u64 << 20);
    // The program has the last word: the recording fits, the program does not.
    assert_eq!(json("410")["verdict"]["kind"], "too_large");
}

#[test]
fn what_was_not_run_is_said() {
    let remarks = |ended: &str, epochs: &str| {
        let variables = [("NEED", "1024"), ("ENDED", ended), ("SHORT", epochs)];
        let text = fits("fits-early", &["--memory", "2GiB"], &[], &variables).success();
        let words = [
            "evaluation, was not run.",
            "2 epochs ended early because the steps made equal requests.",
            "--whole",
        ];
        words.map(|word| text.replace('\n', " ").contains(word))
    };
    assert_eq!(remarks("program", "0"), [false, false, false]);
    assert_eq!(remarks("program", "2"), [false, true, true]);
    assert_eq!(remarks("repeats", "0"), [true, false, true]);
    assert_eq!(remarks("steps", "2"), [false, true, true]);
}

#[test]
fn a_program_that_expects_all_batches_runs_without_short_epochs() {
    let failing = "[ $COALESCE_FITS_EPOCHS = 0 ] || exit 1";
    let variables = [("NEED", "1024"), ("SHORT", "1"), ("LAST", failing)];
    let json = ["--memory", "2GiB", "--json"];
    let ended = fits("fits-again", &json, &[], &variables);
    assert!(
        ended.err.contains("running it without that"),
        "{}",
        ended.err
    );
    ended.success();
}

#[test]
fn all_of_a_program_runs_on_request() {
    let last = r#"[ $COALESCE_FITS_STEPS = 0 ] || rm "$COALESCE_FITS_FOLDER/1.json""#;
    let ended = |flags: &[&str]| {
        let flags = [&["--memory", "2GiB"], flags].concat();
        fits(
            "fits-whole",
            &flags,
            &[],
            &[("NEED", "1024"), ("LAST", last)],
        )
    };
    ended(&["--whole"]).success();
    ended(&[]).failure(2, &["did not use a GPU"]);
    ended(&["--whole", "--steps", "5"]).failure(2, &["--whole", "--steps"]);
}

#[test]
fn a_program_that_survives_a_failed_request_fits() {
    let flags = ["--memory", "1GiB"];
    let survives = [("NEED", "600"), ("ENDED", "program")];
    let text = fits("fits-survives", &flags, &[], &survives).success();
    assert!(
        text.contains("It went on after 1 request failed for lack of memory."),
        "{text}"
    );
}

#[test]
fn the_snapshot_is_kept_on_request() {
    let kept = scratch_folder("fits-kept").join("kept.pickle");
    let path = kept.to_str().unwrap();
    let flags = ["--memory", "2GiB", "--save", path];
    fits("fits-save", &flags, &[], &[("NEED", "1")]).success();
    let recording = recording("fits-save");
    assert_eq!(fs::read(&kept).unwrap(), fs::read(recording).unwrap());
    let below_a_file = format!("{path}/kept.pickle");
    let nowhere = ["--memory", "2GiB", "--save", &below_a_file];
    fits("fits-nowhere", &nowhere, &[], &[]).failure(2, &[&below_a_file]);
    // The answer is printed first.
    if cfg!(target_os = "linux") {
        let full = ["--memory", "2GiB", "--save", "/dev/full"];
        let ended = fits("fits-full", &full, &[], &[("NEED", "1")]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.out.starts_with("The program fits"), "{}", ended.out);
        assert!(
            ended.err.contains("cannot write /dev/full"),
            "{}",
            ended.err
        );
    }
    let both = ["--memory", "2GiB", "--save", "-"];
    fits("fits-both", &both, &[], &[]).failure(2, &["--save"]);
}

#[test]
fn a_program_that_is_too_large_is_told_what_must_go() {
    let ended = fits("fits-not", &["--memory", "662MiB"], &[], &[("NEED", "310")]);
    assert_eq!(ended.code, Some(1));
    let text = ended.out;
    assert!(text.starts_with("The program does not fit.\n"), "{text}");
    assert!(text.contains("must go"), "{text}");
}

#[test]
fn the_largest_number_is_found_in_the_arguments_or_the_environment() {
    let flags = ["--memory", "2GiB", "--vary", "BATCH=1..64"];
    for arguments in [&["{BATCH}"][..], &[]] {
        let text = fits("fits-vary", &flags, arguments, &[]).success();
        assert!(
            text.contains("15 is the largest BATCH with which it fits."),
            "{text}"
        );
    }
    let all = ["--memory", "8GiB", "--vary", "BATCH=1..64"];
    let text = fits("fits-all", &all, &[], &[]).success();
    assert!(
        text.contains("It fits with every BATCH from 1 to 64."),
        "{text}"
    );
    let none = ["--memory", "2GiB", "--vary", "BATCH=400..500"];
    let ended = fits("fits-none", &none, &[], &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .out
            .contains("does not fit with the smallest BATCH, 400."),
        "{}",
        ended.out
    );
}

#[test]
fn without_an_answer_the_reason_is_given() {
    let flags = ["--memory", "2GiB"];
    let failed = |variables: &[(&str, &str)], words: &[&str]| {
        fits("fits-fails", &flags, &["1"], variables).failure(2, words);
    };
    failed(
        &[("ENDED", "no_gpu")],
        &["PyTorch finds no GPU", "setup-torch.sh"],
    );
    failed(&[("ENDED", "real_gpu")], &["found a real GPU"]);
    failed(&[("ENDED", "error")], &["failed:\nlast words"]);
    failed(&[("RECORDING", "/no/such")], &["ended with", "/no/such"]);
    let missing = coalesce(&["fits", "--memory", "2GiB", "--", "/no/such"], "", &[]);
    missing.failure(2, &["cannot run `/no/such`"]);
    let quiet = coalesce(&["fits", "--memory", "2GiB", "--", "true"], "", &[]);
    quiet.failure(2, &["`true` did not use a GPU through PyTorch"]);
    let little = coalesce(&["fits", "--memory", "256MiB", "--", "true"], "", &[]);
    little.failure(2, &["--reserve-for-others leaves no memory"]);
    let none = coalesce(&["fits", "--memory", "512MiB", "--", "true"], "", &[]);
    none.failure(2, &["--reserve-for-others leaves no memory"]);
}

#[test]
fn a_gpu_that_has_just_enough_memory_is_large_enough() {
    // A T4 has 14.75 GiB, of which others use half a GiB.
    for (need, first) in [("14592", "T4, A10"), ("14593", "A10, RTX 4090")] {
        let variables = [("NEED", need)];
        let text = fits("fits-gpus", &["--memory", "80GiB"], &[], &variables).success();
        assert!(text.contains(&format!("large enough    {first}")), "{text}");
    }
    let all = [("NEED", "150000")];
    let text = fits("fits-gpus", &["--memory", "200GiB"], &[], &all).success();
    assert!(
        text.contains("large enough    none of those known here\n"),
        "{text}"
    );
}

#[test]
fn a_program_that_needs_more_than_any_device_has_gets_no_answer() {
    let flags = ["--memory", "2GiB"];
    let words = ["the program runs out of memory on a device of 16.00 TiB too"];
    fits("fits-endless", &flags, &[], &[("NEED", "20000000")]).failure(2, &words);
}

#[test]
fn the_process_that_reserved_most_counts() {
    let second = r#"cd "$COALESCE_FITS_FOLDER"; cp 1.pickle 2.pickle
        sed "s/peak_reserved_bytes\": [0-9]*/peak_reserved_bytes\": $((MORE << 20))/" 1.json > 2.json; touch 3.txt"#;
    for (more, reserved) in [
        ("1536", "1.50 GiB"),
        ("512", "1.00 GiB"),
        ("1024", "1.00 GiB"),
    ] {
        let variables = [("NEED", "1024"), ("LAST", second), ("MORE", more)];
        let text = fits("fits-ranks", &["--memory", "4GiB"], &[], &variables).success();
        assert!(
            text.contains(&format!("it reserves {reserved} at its peak")),
            "{text}"
        );
    }
}

#[test]
fn the_last_twenty_lines_of_a_failed_program_are_shown() {
    let lines = "for i in $(seq 1 25); do echo \"line $i\"; done";
    let variables = [("ENDED", "error"), ("LAST", lines)];
    let ended = fits("fits-lines", &["--memory", "2GiB"], &["1"], &variables);
    let shown: Vec<String> = (6..=25).map(|line| format!("line {line}\n")).collect();
    let end = format!("failed:\n{}", shown.concat());
    assert!(ended.err.ends_with(&end), "{}", ended.err);
    ended.failure(2, &["train"]);
}

#[test]
fn a_program_that_fails_for_lack_of_memory_does_not_fit_even_after_short_epochs() {
    let dies = "[ $ended = repeats ] || exit 1";
    let variables = [("NEED", "310"), ("SHORT", "2"), ("LAST", dies)];
    let ended = fits("fits-late", &["--memory", "812MiB"], &[], &variables);
    assert!(
        !ended.err.contains("running it without that"),
        "{}",
        ended.err
    );
    assert_eq!(ended.code, Some(1));
    // A program that ends well although requests failed goes on; one that ends badly does not fit.
    let survives = [("NEED", "600"), ("ENDED", "program"), ("LAST", "exit 1")];
    let ended = fits("fits-badly", &["--memory", "1GiB"], &[], &survives);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
}

#[test]
fn the_simulated_device_and_the_modules_are_in_the_environment() {
    let last = r#"echo "$FAKE_TOTAL_BYTES $FAKE_FOREIGN_BYTES $FAKE_ADDR $COALESCE_FITS_STEPS $COALESCE_FITS_EPOCHS ${PYTHONPATH#*:}""#;
    let variables = [
        ("NEED", "1"),
        ("ENDED", "error"),
        ("LAST", last),
        ("PYTHONPATH", "/one::/two"),
    ];
    let flags = [
        "--memory",
        "2GiB",
        "--reserve-for-others",
        "1GiB",
        "--steps",
        "7",
    ];
    let ended = fits("fits-environment", &flags, &[], &variables);
    ended.failure(
        2,
        &["last words\n2147483648 1073741824 cuda 7 3 /one:/two\n"],
    );
}
