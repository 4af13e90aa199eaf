//! The functions that C sees, over the simulated CUDA driver. Each scenario is a process of its own, for
//! a driver and the environment are read once.
#![allow(unsafe_code, reason = "what is tested is called from C")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::{env, fs, ptr};

use coalesce_torch::interface::*;
use serde_json::Value;
use simcuda::library;

/// In a child: the scenario that it is.
const CHILD: &str = "COALESCE_TORCH_CHILD";
const MIB: isize = 1 << 20;
const DEFAULT: *mut c_void = ptr::null_mut();

/// Does `scenario`, the test of that name, in a process with these variables and the simulated driver.
/// What it says on standard error.
fn over_simcuda(test: &str, variables: &[(&str, &str)], scenario: impl FnOnce()) -> String {
    if env::var(CHILD).is_ok() {
        scenario();
        return String::new();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    library::place(&folder).unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", test]);
    for (name, _) in env::vars().filter(|(name, _)| {
        ["FAKE_", "PYTORCH_", "COALESCE_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    }) {
        child.env_remove(name);
    }
    child.env(CHILD, test).env("LD_LIBRARY_PATH", &folder);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{said}{errors}");
    fs::remove_dir_all(folder).unwrap();
    errors
}

fn reply(text: *mut c_char) -> Value {
    // SAFETY: it came from the library, and goes back once.
    let json = unsafe {
        let json = CStr::from_ptr(text).to_str().unwrap().to_owned();
        coalesce_release_text(text);
        json
    };
    serde_json::from_str(&json).unwrap()
}

fn figure(device: i32, key: &str) -> i64 {
    reply(coalesce_memory_stats(device))["value"][key]
        .as_i64()
        .unwrap()
}

#[test]
fn memory_comes_from_the_driver_and_goes_back() {
    let test = "memory_comes_from_the_driver_and_goes_back";
    let variables = [
        ("FAKE_DEVICE_COUNT", "2"),
        ("COALESCE_TORCH_ALLOC", "history=100"),
    ];
    let said = over_simcuda(test, &variables, || {
        assert!(coalesce_configuration_error().is_null());
        assert!(
            coalesce_malloc(0, 0, DEFAULT).is_null(),
            "nothing is at no address"
        );
        let first = coalesce_malloc(3 * MIB, 0, DEFAULT);
        let second = coalesce_malloc_or_throw(MIB, 1, DEFAULT);
        assert_ne!(first, second);
        assert_eq!(figure(0, "reserved_bytes.all.current"), 20 << 20);
        assert_eq!(figure(1, "reserved_bytes.all.current"), 2 << 20);
        let mut bytes = 0;
        // SAFETY: `bytes` is a place for a size.
        let base = unsafe { coalesce_base_allocation(second, &raw mut bytes) };
        assert_eq!((base, bytes), (second, 2 << 20));
        coalesce_record_stream(first, DEFAULT);
        coalesce_record_stream(ptr::without_provenance_mut(64), DEFAULT);
        coalesce_free(first, 3 << 20, 0, DEFAULT);
        coalesce_free(ptr::null_mut(), 0, 0, DEFAULT);
        coalesce_empty_cache();
        assert_eq!(figure(0, "reserved_bytes.all.current"), 0);
        assert_eq!(figure(0, "reserved_bytes.all.peak"), 20 << 20);
        assert!(reply(coalesce_reset_peak_stats(0))["value"].is_null());
        assert_eq!(figure(0, "reserved_bytes.all.peak"), 0);
        let snapshot = &reply(coalesce_snapshot(2))["value"];
        let actions = |device: usize| {
            let trace = snapshot["device_traces"][device].as_array().unwrap().iter();
            trace
                .map(|entry| entry["action"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            actions(0),
            [
                "segment_alloc",
                "alloc",
                "free_requested",
                "free_completed",
                "segment_free"
            ]
        );
        assert_eq!(actions(1), ["segment_alloc", "alloc"]);
        assert_eq!(snapshot["segments"][0]["device"], 1);
    });
    assert_eq!(said, "");
}

#[test]
fn what_fails_is_null_and_said() {
    let variables = [("FAKE_TOTAL_BYTES", "1G")];
    let said = over_simcuda("what_fails_is_null_and_said", &variables, || {
        coalesce_set_memory_fraction(0.25, 0);
        assert!(coalesce_malloc(300 * MIB, 0, DEFAULT).is_null());
        coalesce_set_memory_fraction(1.0, 0);
        let block = coalesce_malloc_or_throw(300 * MIB, 0, DEFAULT);
        assert!(!block.is_null());
        assert!(coalesce_malloc_or_throw(900 * MIB, 0, DEFAULT).is_null());
        assert!(coalesce_malloc(-1, 0, DEFAULT).is_null());
        assert!(coalesce_malloc(1, 1, DEFAULT).is_null());
        coalesce_free(ptr::without_provenance_mut(512), 1, 0, DEFAULT);
        coalesce_set_memory_fraction(f64::NAN, 0);
        assert_eq!(figure(0, "num_ooms"), 2);
        assert_eq!(figure(0, "allocation.all.current"), 1);
    });
    if env::var(CHILD).is_err() {
        let lines: Vec<_> = said.lines().collect();
        let expected = [
            "coalesce: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has",
            "coalesce: CUDA out of memory. Tried to allocate 900.00 MiB. GPU 0 has",
            "coalesce: CUDA out of memory. Tried to allocate more than 1EB memory.",
            "coalesce: cannot use device 1: no CUDA device 1: the driver finds 1",
            "coalesce: invalid device pointer: 0x200",
            "coalesce: invalid fraction:nan. Please set within [0, 1].",
        ];
        assert_eq!(lines.len(), expected.len(), "{said}");
        for (line, beginning) in lines.into_iter().zip(expected) {
            assert!(line.starts_with(beginning), "{line}");
        }
    }
}

#[test]
fn a_wrong_environment_is_the_answer_to_everything() {
    let variables = [("COALESCE_TORCH_ALLOC", "policy=bfc;conf=growht:false")];
    let said = over_simcuda(
        "a_wrong_environment_is_the_answer_to_everything",
        &variables,
        || {
            let problem = coalesce_configuration_error();
            assert!(!problem.is_null());
            // SAFETY: it came from the library, and goes back once.
            unsafe { coalesce_release_text(problem) };
            assert!(coalesce_malloc(1, 0, DEFAULT).is_null());
            let error = reply(coalesce_memory_stats(0))["error"].clone();
            let error = error.as_str().unwrap();
            assert!(
                error.starts_with("COALESCE_TORCH_ALLOC: settings of bfc: "),
                "{error}"
            );
        },
    );
    if env::var(CHILD).is_err() {
        assert!(
            said.starts_with("coalesce: COALESCE_TORCH_ALLOC: settings of bfc: "),
            "{said}"
        );
    }
}
