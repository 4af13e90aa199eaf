//! `--policy plugin:LIBRARY`: libraries made for PyTorch's `CUDAPluggableAllocator` decide as policies do.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};

use crate::{checkout, coalesce, scratch_folder, trace};

/// The library that passes every request to CUDA.
fn pass_through() -> String {
    let folder = scratch_folder("plugin");
    let build = checkout().join("benches/cli/tests/cmd/bin/plugin-library");
    let status = Command::new(build)
        .arg(&folder)
        .current_dir(checkout())
        .status();
    assert!(status.unwrap().success());
    folder.join("libplugin.so").to_str().unwrap().to_owned()
}

/// The library for PyTorch of this repository, built with the tests.
fn coalesce_torch() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_coalesce"));
    let folder = program.parent().unwrap().join("deps");
    let library = folder.join("libcoalesce_torch.so");
    assert!(library.is_file(), "{}", library.display());
    library.to_str().unwrap().to_owned()
}

fn replay(policy: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Map<String, Value> {
    let arguments = [&["replay", "--json", "--policy", policy], arguments].concat();
    let out = coalesce(&arguments, "", variables).success();
    let report: Value = serde_json::from_str(&out).unwrap();
    report.as_object().unwrap().clone()
}

/// Compares all figures that both know, except those called otherwise. Returns how many.
fn assert_same(plugin: &Map<String, Value>, policy: &Map<String, Value>, except: &[&str]) -> usize {
    let named = ["policy", "setting", "conf", "torch", "remarks"];
    let mut compared = 0;
    for (column, figure) in policy {
        let unknown = plugin[column].is_null() && !figure.is_null();
        if !unknown && !named.contains(&column.as_str()) && !except.contains(&column.as_str()) {
            assert_eq!(&plugin[column], figure, "{column}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn a_library_that_passes_requests_on_equals_the_policy_direct() {
    let plugin = format!("plugin:{}", pass_through());
    for (name, capacity, addresses) in [
        ("gpt2_small_amp_foreach", "80GiB", "firstfit"),
        ("example_3gib_named_y", "80GiB", "up"),
        ("example_3gib_named_y", "4GiB", "down"),
    ] {
        let trace = trace(name);
        let arguments = [&trace, "--capacity", capacity, "--addresses", addresses];
        let there = replay(&plugin, &arguments, &[]);
        let here = replay("direct", &arguments, &[]);
        assert!(assert_same(&there, &here, &[]) > 35);
        assert!(there["peak_reserved_bytes"].as_u64() > Some(0));
        for unknown in ["peak_allocated_bytes", "peak_inactive_split_bytes"] {
            let is_unknown = there[unknown].is_null() && here[unknown].is_u64();
            assert!(is_unknown, "{unknown}");
        }
    }
}

/// The same decisions over another driver, in another process and through C.
#[test]
fn the_library_for_pytorch_equals_the_policy_pytorch() {
    let plugin = format!("plugin:{}", coalesce_torch());
    // PyTorch counts these by rules of its own, and an error of ours asks for the free memory once more.
    let own = ["device_allocs", "device_frees", "retries", "syncs"];
    let asked = [
        "calls_memory_info",
        "driver_calls_per_1000",
        "driver_time_ns",
    ];
    // PyTorch does not count pages that it returns within the same request, because there are too few.
    let brief = ["peak_reserved_bytes", "efficiency"];
    for (case, except) in [
        ("example_3gib_named_y 80GiB", &[][..]),
        ("resnet50_amp_varsize_prefetch_stream 80GiB", &[]),
        ("gpt2_small_amp_foreach 80GiB expandable_segments:True", &[]),
        ("gpt2_small_amp_foreach 13GiB max_split_size_mb:128", &[]),
        (
            "gpt2_small_amp_foreach 13GiB expandable_segments:True",
            &brief,
        ),
        ("gpt2_small_amp_foreach 13GiB", &asked),
    ] {
        let mut words = case.split(' ');
        let [name, capacity, conf] = [(); 3].map(|()| words.next().unwrap_or_default());
        let arguments = [&trace(name), "--capacity", capacity];
        let variables = [("PYTORCH_CUDA_ALLOC_CONF", conf)];
        let there = replay(&plugin, &arguments, &variables);
        let arguments = [&arguments[..], &["--conf", conf]].concat();
        let here = replay("pytorch", &arguments, &[]);
        let compared = assert_same(&there, &here, &[&own, except].concat());
        assert!(compared > 25, "{case}");
    }
}

#[test]
fn what_a_library_does_not_see_is_refused() {
    let refused = |policy: String, arguments: &[&str]| {
        let arguments = [&["replay", "--policy", &policy], arguments].concat();
        coalesce(&arguments, "", &[]).failure(1, &["plugin does not serve workloads that"]);
    };
    let plugin = || format!("plugin:{}", coalesce_torch());
    refused(plugin(), &["streams_late"]);
    refused(plugin(), &["shared_gpu", "--capacity", "12GiB"]);
}
