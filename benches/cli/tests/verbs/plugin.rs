//! `--policy plugin:LIBRARY`: libraries made for PyTorch's `CUDAPluggableAllocator`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::{checkout, coalesce, scratch, scratch_folder, trace};

/// The library that passes every request to CUDA. It is linked with a CUDA runtime 12, with the versions of symbols that
/// NVIDIA's has.
fn pass_through() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = scratch_folder("plugin");
        let version = folder.join("version");
        fs::write(&version, "libcudart.so.12 { global: cuda*; };").unwrap();
        let runtime = folder.join("runtime.c");
        let functions = ["cudaMalloc", "cudaFree", "cudaMemGetInfo"];
        let functions = functions.map(|name| format!("int {name}(void) {{ return 1; }}\n"));
        fs::write(&runtime, functions.concat()).unwrap();
        let stub = folder.join("libcudart.so.12");
        let version = format!("-Wl,--version-script={}", version.display());
        compile(
            &[&runtime],
            &stub,
            &["-Wl,-soname,libcudart.so.12", &version],
        );
        let source = checkout().join("benches/cli/tests/verbs/plugin.c");
        let library = folder.join("libplugin.so");
        compile(&[&source, &stub], &library, &["-Wl,-z,lazy"]);
        fs::remove_file(stub).unwrap();
        library.to_str().unwrap().to_owned()
    })
}

fn compile(sources: &[&PathBuf], library: &Path, more: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-fno-builtin", "-o"]);
    let status = cc.arg(library).args(sources).args(more).status();
    assert!(status.unwrap().success(), "{cc:?}");
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
            assert!(
                there[unknown].is_null() && here[unknown].is_u64(),
                "{unknown}"
            );
        }
    }
}

#[test]
fn the_report_says_what_a_library_does_not_tell() {
    let policy = format!("plugin:{}:take,give", pass_through());
    let arguments = ["replay", "fragmentation_article", "--policy", &policy];
    let ended = coalesce(&arguments, "", &[]);
    assert!(
        ended.err.contains("allocates"),
        "what it prints: {}",
        ended.err
    );
    let text = ended.success();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("peak allocated").contains("unknown"), "{text}");
    assert!(line("peak inactive split").contains("unknown"), "{text}");
    assert!(line("peak reserved").contains("iB"), "{text}");
    assert!(
        text.contains(&policy) && !text.contains("allocates"),
        "{text}"
    );
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
    for (name, conf, capacity, except) in [
        ("example_3gib_named_y", "", "80GiB", &[][..]),
        ("resnet50_amp_varsize_prefetch_stream", "", "80GiB", &[]),
        (
            "gpt2_small_amp_foreach",
            "expandable_segments:True",
            "80GiB",
            &[],
        ),
        (
            "gpt2_small_amp_foreach",
            "max_split_size_mb:128",
            "13GiB",
            &[],
        ),
        (
            "gpt2_small_amp_foreach",
            "expandable_segments:True",
            "13GiB",
            &brief,
        ),
        ("gpt2_small_amp_foreach", "", "13GiB", &asked),
    ] {
        let arguments = [&trace(name), "--capacity", capacity];
        let variables = [("PYTORCH_CUDA_ALLOC_CONF", conf)];
        let there = replay(&plugin, &arguments, &variables);
        let here = replay(
            "pytorch",
            &[&arguments[..], &["--conf", conf]].concat(),
            &[],
        );
        assert!(
            assert_same(&there, &here, &[&own, except].concat()) > 25,
            "{name} {conf}"
        );
    }
}

#[test]
fn what_goes_wrong_is_explained() {
    let library = pass_through();
    let fails = |policy: &str, variables: &[(&str, &str)], words: &[&str]| {
        let arguments = ["replay", "fragmentation_article", "--policy", policy];
        let ended = coalesce(&arguments, "", variables);
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (Some(1), ""),
            "{}",
            ended.err
        );
        for word in words {
            assert!(ended.err.contains(word), "no '{word}' in: {}", ended.err);
        }
    };
    let plugin = format!("plugin:{library}");
    for (mode, words) in [
        ("crash", &["crashed in a malloc of", "signal 11"][..]),
        ("abort", &["aborted in a malloc of", "must return null"]),
        ("exit", &["ended its process", "status 3"]),
        ("silent", &["without any call", "-cudart shared"]),
        (
            "future",
            &["cudaFunctionFromTheFuture", "ended its process"],
        ),
        ("overlap", &["overlaps the live block"]),
        ("host", &["not all taken from the device"]),
    ] {
        fails(&plugin, &[("MODE", mode)], words);
    }
    let hangs = [("MODE", "hang"), ("COALESCE_PLUGIN_SECONDS", "1")];
    fails(&plugin, &hangs, &["a malloc of", "within 1 s"]);
    let never = [("COALESCE_PLUGIN_SECONDS", "0")];
    fails(&plugin, &never, &["COALESCE_PLUGIN_SECONDS: '0'"]);
    let nowhere = [("COALESCE_SIMCUDA", "/nowhere/libsimcuda.so")];
    fails(
        &plugin,
        &nowhere,
        &["/nowhere/libsimcuda.so", "cargo build"],
    );
    fails("plugin:nowhere.so", &[], &["no library nowhere.so"]);
    fails("plugin:", &[], &["expected plugin:PATH"]);
    let other = format!("{plugin}:no_malloc,my_free");
    fails(&other, &[], &["looked for no_malloc and my_free"]);
    let text = scratch("not_a_library.so", "text".repeat(1000));
    fails(
        &format!("plugin:{}", text.display()),
        &[],
        &["cannot load it", "ELF"],
    );
    let without = scratch_folder("plugin_without").join("libwithout.so");
    let source = scratch("without.c", "int one(void) { return 1; }\n");
    compile(&[&source], &without, &[]);
    let without = format!("plugin:{}", without.display());
    fails(
        &without,
        &[],
        &["coalesce_malloc and coalesce_free, or my_malloc"],
    );
    let settings = ["replay", "churn", "--policy", &plugin, "--conf", "a:1"];
    coalesce(&settings, "", &[]).failure(1, &["'a:1'", "NAME=VALUE"]);
}

#[test]
fn a_sweep_runs_libraries_beside_policies() {
    let library = pass_through();
    let folder = Path::new(library).parent().unwrap();
    let sweep = folder.join("sweep.toml");
    let text = |mode: &str| {
        format!(
            "[settings]\nplain = '{mode}'\n[[workload]]\npresets = ['fragmentation_article']\n[[run]]\n\
             policies = ['plugin:libplugin.so']\ncapacities = ['1TiB', 'least']\n"
        )
    };
    fs::write(&sweep, text("")).unwrap();
    let sweep = sweep.to_str().unwrap();
    let rows = coalesce(&["sweep", sweep, "--out", "-"], "", &[]).success();
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert!(
        rows.contains(&format!("plugin:{library},plain,1TiB")),
        "{rows}"
    );
    // A crash ends its own cells, with a reason.
    fs::write(sweep, text("MODE=crash")).unwrap();
    let words = ["2 cells failed", "signal 11"];
    let ended = coalesce(&["sweep", sweep, "--out", "-"], "", &[]);
    assert_eq!(ended.code, Some(1));
    for word in words {
        assert!(ended.err.contains(word), "no '{word}' in: {}", ended.err);
    }
}

#[test]
fn what_a_library_does_not_see_is_refused() {
    let refused = |policy: String, arguments: &[&str]| {
        let arguments = [&["replay", "--policy", &policy], arguments].concat();
        coalesce(&arguments, "", &[]).failure(1, &["plugin does not serve workloads that"]);
    };
    refused(format!("plugin:{}", coalesce_torch()), &["streams_late"]);
    refused(
        format!("plugin:{}", coalesce_torch()),
        &["shared_gpu", "--capacity", "12GiB"],
    );
}
