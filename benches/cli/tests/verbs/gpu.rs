//! Verbs that use a GPU, with the simulated driver.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Ended, coalesce, scratch, scratch_folder, trace};

/// Runs the program with the simulated CUDA driver.
fn on_a_gpu(arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let folder = scratch_folder("driver");
    simcuda::library::place(&folder).unwrap();
    let library_path = ("LD_LIBRARY_PATH", folder.to_str().unwrap());
    coalesce(arguments, "", &[variables, &[library_path]].concat())
}

fn json(ended: Ended) -> Value {
    serde_json::from_str(&ended.success()).unwrap()
}

/// The lines of a table, by the names of the columns.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn a_profile_is_measured_and_can_be_used() {
    let (profile, samples) = (scratch("measured.toml", ""), scratch("measured.csv", ""));
    let (profile, samples) = (profile.to_str().unwrap(), samples.to_str().unwrap());
    let measured = on_a_gpu(
        &[
            "profile",
            "--device",
            "cuda:0",
            "--out",
            profile,
            "--samples",
            samples,
            "--rounds",
            "3",
        ],
        &[("FAKE_TOTAL_BYTES", "64M")],
    );
    assert_eq!(measured.success(), "");
    let text = fs::read_to_string(profile).unwrap();
    for words in [
        "GPU: ",
        "processor: ",
        "[calls]\nmalloc = ",
        "\nset_access = ",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
    let rows = table(Path::new(samples));
    let sizes = rows.iter().filter(|row| row["call"] == "create");
    let sizes: Vec<u64> = sizes.map(|row| row["bytes"].parse().unwrap()).collect();
    assert_eq!(
        sizes,
        [2, 4, 8, 16, 32].map(|mib| mib << 20),
        "sizes that fit"
    );
    let program = trace("example_interleaved_free");
    let replayed = coalesce(&["replay", &program, "--profile", profile], "", &[]);
    let replayed = replayed.success();
    assert!(
        replayed.ends_with(&format!("  by the profile {profile}\n")),
        "{replayed}"
    );
}

#[test]
fn a_gpu_decides_as_the_simulated_device_does() {
    let program = trace("gpt2_small_amp_foreach");
    let arguments = ["replay", &program, "--json", "--profile", "published"];
    let simulated = json(coalesce(&arguments, "", &[]));
    let arguments = [&arguments[..], &["--device", "cuda:0"]].concat();
    let on_gpu = json(on_a_gpu(&arguments, &[]));
    for figure in [
        "peak_reserved_bytes",
        "device_allocs",
        "driver_time_ns",
        "calls_malloc",
    ] {
        assert_eq!(on_gpu[figure], simulated[figure], "{figure}");
    }
    assert_eq!(on_gpu["address_policy"], "device");
    assert!(on_gpu["device"].as_str().unwrap().starts_with("cuda:0, "));
    assert!(on_gpu["driver_measured_ns"].as_u64().unwrap() > 0);
    assert_eq!(simulated["device"], Value::Null);
}

#[test]
fn contents_are_verified() {
    let program = trace("resnet50_amp_varsize_prefetch_stream");
    let arguments = ["replay", &program, "--device", "auto", "--verify"];
    let late = [("FAKE_MEMORY", "1"), ("FAKE_HOLD_EVENTS", "1")];
    let text = on_a_gpu(&arguments, &late).success();
    assert!(text.contains("verified: 11277 blocks"), "{text}");
    // A failing kernel launch loses a write.
    let lost = [("FAKE_MEMORY", "1"), ("FAKE_FAIL", "cuLaunchKernel:700:9")];
    on_a_gpu(&arguments, &lost).failure(1, &["cuLaunchKernel", "700"]);
}

#[test]
fn every_policy_is_timed_with_its_memory() {
    let out = scratch_folder("bench-out");
    let arguments = [
        "bench",
        "hot_4KiB",
        "record_stream_4_streams",
        "--seconds",
        "0.2",
    ];
    let policies = [
        "--policy",
        "pytorch",
        "--policy",
        "cuda_async",
        "--policy",
        "bfc",
    ];
    let to = ["--device", "cuda:0", "--out", out.to_str().unwrap()];
    let text = on_a_gpu(&[&arguments[..], &policies, &to].concat(), &[]).success();
    assert!(text.contains("hot_4KiB on cuda:0"), "{text}");
    assert!(
        text.contains("does not serve work on more than one stream"),
        "{text}"
    );
    let cells = table(&out.join("cells.csv"));
    assert_eq!(cells.len(), 2 * 5, "two settings of two of them");
    let hot: Vec<_> = cells
        .iter()
        .filter(|row| row["program"] == "hot_4KiB")
        .collect();
    for row in &hot {
        let walked: u64 = row["walked"].parse().unwrap();
        // A busy machine does not complete the walk in the time given.
        assert!((1..=1000).contains(&walked), "{walked}");
        assert_eq!(row["left_out"], "");
        assert!(row["ns_per_pair"].parse::<f64>().unwrap() > 0.0);
        let is_pool = row["policy"] == "cuda_async";
        assert_eq!(
            row["stream_ns_per_pair"].is_empty(),
            !is_pool,
            "only the pool is stream-ordered"
        );
    }
    let pytorch = hot.iter().find(|row| row["policy"] == "pytorch").unwrap();
    assert_eq!(pytorch["peak_device_bytes"], (2 << 20).to_string());
    assert_eq!(pytorch["difference_bytes"], "0");
    let latencies = table(&out.join("latencies.csv"));
    let of_hot = latencies.iter().filter(|row| row["program"] == "hot_4KiB");
    assert_eq!(
        of_hot.clone().count(),
        hot.len() * 4,
        "two walks, two calls"
    );
    for row in of_hot {
        let ns = ["p50_ns", "p99_ns", "p999_ns", "max_ns"];
        let ns = ns.map(|name| row[name].parse::<u64>().unwrap());
        assert!(ns.is_sorted(), "{ns:?}");
    }
}

#[test]
fn a_profile_is_compared_with_the_driver() {
    let out = scratch("model.csv", "");
    let arguments = ["model", "growth_staircase", "--device", "cuda:0", "--out"];
    let text = on_a_gpu(&[&arguments[..], &[out.to_str().unwrap()]].concat(), &[]).success();
    assert!(
        text.contains("| growth_staircase | pytorch | expandable | "),
        "{text}"
    );
    let rows = table(&out);
    let malloc = |row: &&BTreeMap<String, String>| {
        row["call"] == "malloc"
            && (&row["policy"][..], &row["setting"][..]) == ("pytorch", "default")
    };
    let malloc = rows.iter().find(malloc).unwrap();
    let figure = |name: &str| malloc[name].parse::<f64>().unwrap();
    let ratio = figure("modelled_ns") / figure("measured_ns");
    assert!((figure("ratio") - ratio).abs() < 0.001, "{malloc:?}");
}

#[test]
fn kernels_run_between_requests() {
    let fails = [("FAKE_FAIL", "cuLaunchKernel:700:5")];
    let model = [
        "model",
        "growth_staircase",
        "--device",
        "cuda:0",
        "--rounds",
        "1",
    ];
    on_a_gpu(&model, &fails).success();
    let busy = [&model[..], &["--kernels"]].concat();
    on_a_gpu(&busy, &fails).failure(1, &["cuLaunchKernel", "700"]);
    let out = scratch_folder("busy-bench");
    let bench = [
        "bench",
        "hot_4KiB",
        "--policy",
        "pytorch",
        "--seconds",
        "0.2",
    ];
    let to = [
        "--kernels",
        "--device",
        "cuda:0",
        "--out",
        out.to_str().unwrap(),
    ];
    let bench = [&bench[..], &to].concat();
    let left_out = on_a_gpu(&bench, &fails).success();
    assert!(left_out.contains("cuLaunchKernel"), "{left_out}");
    on_a_gpu(&bench, &[]).success();
    let cells = table(&out.join("cells.csv"));
    assert!(cells.iter().all(|row| row["ns_per_pair"].is_empty()));
    let latencies = table(&out.join("latencies.csv"));
    assert!(!latencies.is_empty());
}

#[test]
fn invalid_measurements_are_rejected_with_a_reason() {
    let refused = |arguments: &[&str], words: &[&str]| {
        on_a_gpu(arguments, &[]).failure(1, words);
    };
    let program = &trace("example_interleaved_free");
    refused(
        &["profile", "--device", "cuda:3"],
        &["no CUDA device 3", "the driver finds 1"],
    );
    refused(&["profile", "--device", "sim"], &["no GPU", "cuda:0"]);
    refused(
        &["replay", program, "--verify"],
        &["--verify", "--device cuda:0"],
    );
    let capacity = [
        "replay",
        program,
        "--device",
        "cuda:0",
        "--capacity",
        "1GiB",
    ];
    refused(&capacity, &["--capacity", "simulated"]);
    let nameless = ["replay", program, "--device", "gpu"];
    coalesce(&nameless, "", &[]).failure(2, &["'gpu'", "sim, auto, or cuda:0"]);
    let no_device = [("FAKE_NO_DEVICE", "1")];
    let profile = on_a_gpu(&["profile"], &no_device);
    profile.failure(1, &["no GPU to measure on", "no CUDA device"]);
    let auto = on_a_gpu(&["replay", program, "--device", "auto"], &no_device);
    assert!(
        auto.success().contains("addresses up"),
        "the simulated device"
    );
}

/// A failing device is reported as an error.
#[test]
fn a_failing_device_ends_the_measurement() {
    let dies = [("FAKE_FAIL", "cuMemAlloc_v2:719:200")];
    let bench = [
        "bench",
        "mixed_1000_live",
        "--policy",
        "direct",
        "--device",
        "cuda:0",
    ];
    on_a_gpu(&bench, &dies).failure(1, &["719"]);
    on_a_gpu(&["profile"], &[("FAKE_FAIL", "cuMemMap:719:5")]).failure(1, &["719"]);
}

/// What a replay on a GPU leaves out is said, and only there.
#[test]
fn a_limit_of_the_workload_holds_on_a_gpu_only_under_pytorch() {
    let trace = "op,id,bytes,stream,tag\nlimit,-1,104857600,0,\nalloc,1,5,0,a\n";
    let limited = scratch("gpu-limited.csv", trace);
    let limited = limited.to_str().unwrap();
    let remark =
        "The workload limits its memory, but on a GPU only the policy pytorch has such a limit.";
    let says = |policy: &str, device: &str| {
        let arguments = ["replay", limited, "--policy", policy, "--device", device];
        on_a_gpu(&arguments, &[]).success().contains(remark)
    };
    assert!(says("tlsf", "cuda:0"));
    assert!(!says("pytorch", "cuda:0") && !says("tlsf", "sim"));
    let unlimited = scratch(
        "gpu-unlimited.csv",
        "op,id,bytes,stream,tag\nalloc,1,5,0,a\n",
    );
    let unlimited = unlimited.to_str().unwrap();
    let plain = [
        "replay", unlimited, "--policy", "tlsf", "--device", "cuda:0",
    ];
    let text = on_a_gpu(&plain, &[]).success();
    assert!(!text.contains("The workload"), "{text}");
    for flags in [
        ["--limit", "1GiB"],
        ["--addresses", "up"],
        ["--reserve-for-others", "1MiB"],
        ["--capacity", "1GiB"],
    ] {
        let arguments = [&["replay", unlimited, "--device", "cuda:0"], &flags[..]].concat();
        let words = ["apply to the simulated device only, not to cuda:0, "];
        on_a_gpu(&arguments, &[]).failure(1, &words);
    }
}

/// The time is over before the second program.
#[test]
fn programs_for_which_there_is_no_time_are_named() {
    let out = scratch("gpu-model.csv", "");
    let model = |seconds: &str, out: &str| {
        let arguments = [
            "model",
            "fragmentation_article",
            "comb",
            "--device",
            "cuda:0",
            "--rounds",
            "1",
            "--seconds",
            seconds,
            "--out",
            out,
        ];
        on_a_gpu(&arguments, &[])
    };
    let none = model("0", "-");
    assert!(
        none.err
            .contains("coalesce: not measured, out of time: fragmentation_article, comb\n"),
        "{}",
        none.err
    );
    assert_eq!(none.success(), "");
    let all = model("3600", out.to_str().unwrap());
    assert!(!all.err.contains("out of time"), "{}", all.err);
    let text = all.success();
    assert!(
        text.contains("| fragmentation_article | pytorch | expandable |"),
        "{text}"
    );
    assert!(text.contains("| comb | cuda_async | default |"), "{text}");
    let programs = table(&out).into_iter().map(|row| row["program"].clone());
    let programs: std::collections::BTreeSet<String> = programs.collect();
    assert_eq!(programs.len(), 2);
}

#[test]
fn changes_of_other_processes_are_not_made_on_a_gpu() {
    let trace = "op,id,bytes,stream,tag\nothers,-1,104857600,0,\nalloc,1,5,0,a\n";
    let changing = scratch("gpu-others.csv", trace);
    let changing = changing.to_str().unwrap();
    let remark = "The workload's changes of other processes' memory and of running kernels are not made on a GPU.";
    let says = |device: &str| {
        let arguments = ["replay", changing, "--device", device];
        on_a_gpu(&arguments, &[]).success().contains(remark)
    };
    assert!(says("cuda:0") && !says("sim"));
}
