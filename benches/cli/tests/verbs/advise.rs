//! `coalesce advise`.

use std::fs;

use coalesce_bench::text::Unit;
use serde_json::Value;

use crate::{coalesce, scratch, scratch_folder, trace};

fn json(arguments: &[&str]) -> Value {
    let arguments = [&["advise"], arguments, &["--json", "--time-limit", "0"]].concat();
    serde_json::from_str(&coalesce(&arguments, "", &[]).success()).unwrap()
}

/// Rounds of tensors of 20 to 59 MiB, with other sizes in each round.
fn fragmented() -> String {
    let mut csv = String::from("op,id,bytes,stream,tag\n");
    for round in 0..20_u64 {
        for part in 0..8 {
            let (id, mib) = (round * 20 + part, 20 + (round * 7 + part * 3) % 40);
            csv.push_str(&format!("alloc,{id},{},0,mm\n", mib << 20));
        }
        for part in 0..8 {
            let (id, mib) = (round * 20 + part, 20 + (round * 7 + part * 3) % 40);
            csv.push_str(&format!("free,{id},{},0,\n", mib << 20));
        }
    }
    let path = scratch("fragmented.csv", csv);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_text_begins_with_the_answer_and_a_command_to_paste() {
    let text = coalesce(&["advise", &fragmented()], "", &[]).success();
    assert!(text.starts_with("With the settings below"), "{text}");
    let command = text.lines().find(|line| line.starts_with("  export"));
    assert!(
        command.is_some_and(|line| line.contains("PYTORCH_CUDA_ALLOC_CONF=")),
        "{text}"
    );
    for words in [
        "With the settings below, the program completes with",
        "lower bound",
        "Settings: the current ones, then the best for least-capacity first",
        "(current",
        "advised",
        "Other allocators",
        "Reliability",
        "perturbed runs of the program",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

#[test]
fn json_goes_to_a_file_beside_the_text() {
    let folder = scratch_folder("advise_json");
    let (path, small) = (
        folder.join("advice.json"),
        trace("example_interleaved_free"),
    );
    let flag = format!("--json={}", path.display());
    let written = |arguments: &[&str]| -> Value {
        let text = coalesce(arguments, "", &[]).success();
        assert!(!text.is_empty() && !text.starts_with('{'), "{text}");
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
    };
    let job = written(&["advise", &small, &small, &flag]);
    assert_eq!(job["ranks"].as_array().unwrap().len(), 2);
    let difference = written(&["diff", &small, &small, &flag]);
    assert_eq!(difference["cause"], "equal");
    let page = folder.join("advice.html");
    let page = page.to_str().unwrap();
    let advice = written(&["advise", &small, &flag, "--html", page]);
    assert_eq!(advice["workload"], "example_interleaved_free");
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .starts_with("<!doctype html>")
    );
}

#[test]
fn the_advised_settings_fit_in_their_minimum_device_memory() {
    let file = fragmented();
    let advice = json(&[&file]);
    let rows = advice["ranking"].as_array().unwrap();
    let advised = rows.iter().find(|row| row["is_advised"] == true).unwrap();
    assert_eq!(advice["answer"]["conf"], advised["conf"]);
    let present = &rows[0];
    assert_eq!(present["is_present"], true);
    let least = |row: &Value| row["least_capacity_bytes"].as_u64().unwrap();
    assert!(least(advised) < least(present));
    assert!(least(advised) >= advice["lower_bound_bytes"].as_u64().unwrap());
    let ooms = |bytes: u64| {
        let conf = advised["conf"].as_str().unwrap();
        let capacity = bytes.to_string();
        let arguments = [
            "replay",
            &file,
            "--conf",
            conf,
            "--capacity",
            &capacity,
            "--json",
        ];
        let row: Value = serde_json::from_str(&coalesce(&arguments, "", &[]).success()).unwrap();
        row["ooms"].as_u64().unwrap()
    };
    assert_eq!(ooms(least(advised)), 0);
    assert!(ooms(least(advised) - (2 << 20)) > 0);
}

/// The size of a tensor was miscalculated, so that it is larger than any device.
#[test]
fn more_memory_than_any_device_has_is_refused_with_its_place() {
    let instance = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,184467440731615\n";
    let file = scratch("larger-than-any.csv", instance);
    let file = file.to_str().unwrap();
    let ended = coalesce(&["advise", file, "--time-limit", "2"], "", &[]);
    ended.failure(
        1,
        &[
            "larger-than-any",
            "167.77 TiB",
            "16.00 TiB",
            "event 1",
            "bytes",
        ],
    );
    // The simulated device refuses the request.
    for conf in ["", "expandable_segments:True"] {
        let replay = ["replay", file, "--conf", conf, "--json"];
        let row: Value = serde_json::from_str(&coalesce(&replay, "", &[]).success()).unwrap();
        assert_eq!(row["ooms"], 1, "{conf}");
    }
}

#[test]
fn the_advice_is_deterministic() {
    let answer = || {
        let mut advice = json(&[&trace("resnet50_fp32_fixed224"), "--capacity", "6GiB"]);
        advice["search"]["seconds"] = Value::Null;
        advice
    };
    assert_eq!(answer(), answer());
}

#[test]
fn missing_memory_is_reported_if_no_setting_helps() {
    let file = trace("example_3gib_named_y");
    let advice = json(&[&file, "--capacity", "10GiB", "--reserve-for-others", "1GiB"]);
    assert_eq!(advice["answer"]["kind"], "impossible");
    // It requests 12 GiB and two scalars.
    assert_eq!(advice["answer"]["missing_bytes"], (3_u64 << 30) + 8);
    let text = coalesce(&["advise", &file, "--capacity", "10GiB"], "", &[]).success();
    assert!(text.contains("because it needs too much memory"), "{text}");
    assert!(text.contains("No setting can help:"), "{text}");
    let advice = json(&[&file]);
    assert_eq!(advice["answer"]["kind"], "keep");
}

#[test]
fn an_allocator_that_makes_the_program_fit_is_named_if_no_setting_does() {
    let trace = trace("llama1b_bf16_ckpt");
    let text = coalesce(&["advise", &trace, "--capacity", "13480MiB"], "", &[]).success();
    assert!(!text.contains("must go"), "{text}");
    let sentences = text.split("\n\n").take(2).collect::<String>();
    let sentences = sentences.replace('\n', " ");
    for part in [
        "No setting that was tried makes the program fit: it needs least with ",
        "With Coalesce's own allocator in place of PyTorch's it fits: it needs 13.16 GiB, ",
        "COALESCE_TORCH_ALLOC=policy=quilt python -m coalesce_torch PROGRAM.py",
    ] {
        assert!(sentences.contains(part), "no '{part}' in:\n{text}");
    }
}

#[test]
fn the_aim_and_the_current_settings_are_respected() {
    let file = fragmented();
    let conf = "max_split_size_mb:32,pinned_num_register_threads:4";
    let advice = json(&[&file, "--conf", conf, "--for", "reserved"]);
    assert_eq!(advice["aim"], "reserved");
    let rows = advice["ranking"].as_array().unwrap();
    assert_eq!(rows[0]["conf"], conf);
    for row in rows {
        let conf = row["conf"].as_str().unwrap();
        assert!(conf.contains("pinned_num_register_threads:4"), "{conf}");
    }
    let held = |row: &Value| row["on_device"]["peak_reserved_bytes"].as_u64().unwrap();
    let best = rows.iter().map(held).min().unwrap();
    let is_best = |row: &&Value| {
        row["best_for"]
            .as_array()
            .unwrap()
            .contains(&"reserved".into())
    };
    let chosen = held(rows.iter().find(is_best).unwrap());
    // A gain of half a percent does not justify another setting.
    assert!(chosen <= best + best / 200, "{chosen} {best}");
}

#[test]
fn the_html_report_is_self_contained() {
    let out = scratch_folder("report").join("report.html");
    let file = scratch(
        "marked<b>.csv",
        "op,id,bytes,stream,tag\nmark,-1,0,0,step 1\nalloc,1,30000000,0,<script>alert(1)</script>\n",
    );
    let arguments = [
        "advise",
        file.to_str().unwrap(),
        "--html",
        out.to_str().unwrap(),
    ];
    coalesce(&arguments, "", &[]).success();
    let html = fs::read_to_string(out).unwrap();
    assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
    assert!(!html.contains("<script>alert") && !html.contains("marked<b>"));
    for loads in ["src=", "href=", "url(", "@import", "http:", "https:"] {
        assert!(!html.contains(loads), "{loads}");
    }
    // All slots of the template are filled.
    for slot in [
        "@title@",
        "@text@",
        "@sections@",
        "@missing@",
        "@advice@",
        "@replays@",
        "@data@",
        "@script@",
    ] {
        assert!(!html.contains(slot), "{slot}");
    }
    for id in ["advice", "replays", "replay-0", "frames"] {
        assert!(html.contains(&format!("<script id=\"{id}\"")), "{id}");
    }
}

/// Text, JSON and HTML show the same figures, all in one unit.
#[test]
fn the_same_quantity_is_the_same_everywhere() {
    let file = fragmented();
    let advice = json(&[&file, "--capacity", "400MiB"]);
    let page = scratch_folder("agreement").join("report.html");
    let html_to = page.to_str().unwrap();
    let arguments = ["advise", &file, "--capacity", "400MiB", "--time-limit", "0"];
    let arguments = [&arguments[..], &["--html", html_to]].concat();
    let text = coalesce(&arguments, "", &[]).success();
    let html = fs::read_to_string(&page).unwrap();
    let bytes = |value: &Value| value.as_u64().unwrap();
    let unit = Unit::of(bytes(&advice["lower_bound_bytes"]));
    let answer = &advice["answer"];
    let mut figures = vec![
        bytes(&advice["lower_bound_bytes"]),
        bytes(&answer["available_bytes"]),
        bytes(&answer["needs_bytes"]),
        bytes(&answer["failure"]["reserved_bytes"]),
        bytes(&advice["holdings"]["total_bytes"]),
    ];
    let rows = advice["ranking"].as_array().unwrap();
    figures.extend(
        rows.iter()
            .filter_map(|row| row["least_capacity_bytes"].as_u64()),
    );
    for figure in figures {
        let figure = unit.amount(figure);
        assert!(text.contains(&figure), "no {figure} in the text: {text}");
        assert!(html.contains(&figure), "no {figure} in the page");
    }
    let advised = rows.iter().find(|row| row["is_advised"] == true).unwrap();
    assert_eq!(answer["needs_bytes"], advised["least_capacity_bytes"]);
}

#[test]
fn the_ranks_of_a_job_get_one_setting() {
    let (one, other) = (fragmented(), trace("example_3gib_fused_expr"));
    let job = json(&[&one, &other, "--capacity", "10GiB"]);
    let needs = job["needs"].as_array().unwrap();
    let current = |rank: usize| needs[rank]["current_bytes"].as_u64().unwrap();
    let worst = usize::from(current(1) > current(0));
    assert_eq!(job["worst"], worst);
    for rank in 0..2 {
        let ranking = job["ranks"][rank]["ranking"].as_array().unwrap();
        assert_eq!(ranking[0]["least_capacity_bytes"], current(rank));
    }
    let text = coalesce(&["advise", &one, &other, "--time-limit", "0"], "", &[]).success();
    for words in [
        "needs now",
        "needs then",
        "an imbalance of",
        "example_3gib_fused_expr",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

/// The advice that was found is printed, other files are written, and the program fails.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_written_loses_no_advice() {
    let folder = scratch_folder("unwritable");
    let occupied = scratch("occupied", String::new());
    let page = folder.join("page.html");
    let full = std::path::Path::new("/dev/full");
    for target in [&folder, full, &occupied.join("report.html")] {
        let target = target.to_str().unwrap();
        let to_json = format!("--json={target}");
        let page = page.to_str().unwrap();
        let (small, one) = (fragmented(), trace("example_interleaved_free"));
        for arguments in [
            &["advise", &small, "--html", target][..],
            &["advise", &small, &to_json, "--html", page],
            &["advise", &one, &one, &to_json],
        ] {
            let ended = coalesce(arguments, "", &[]);
            assert_eq!(ended.code, Some(1), "{}", ended.err);
            assert!(ended.out.contains("Reliability") || arguments.contains(&&*one));
            assert!(ended.out.lines().count() > 5, "{}", ended.out);
            let last = ended.err.lines().last().unwrap();
            assert!(
                last.contains("cannot write") && last.contains(target),
                "{last}"
            );
        }
        let written = fs::read_to_string(page).unwrap();
        assert!(written.starts_with("<!doctype html>"));
        fs::remove_file(page).unwrap();
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn invalid_arguments_are_rejected() {
    let advise = |arguments: &[&str]| coalesce(&[&["advise"], arguments].concat(), "", &[]);
    let file = trace("example_interleaved_free");
    advise(&["nothing.csv"]).failure(1, &["nothing.csv", "no such file"]);
    advise(&["transformr"]).failure(
        1,
        &["neither a file nor a preset", "did you mean 'transformer'"],
    );
    advise(&[&file, "--conf", "max_split_size_mb:1"]).failure(1, &["too small"]);
    advise(&[&file, "--capacity", "1GiB", "--reserve-for-others", "1GiB"])
        .failure(1, &["leaves no device memory"]);
    advise(&[&file, "--for", "speed"]).failure(2, &["least-capacity, driver-time, reserved"]);
    advise(&[&file, "--time-limit", "-1"]).failure(1, &["--time-limit"]);
    let pickle = scratch("broken.pickle", b"\x80\x04.");
    advise(&[pickle.to_str().unwrap()]).failure(1, &["broken.pickle"]);
}
