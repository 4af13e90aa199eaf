//! The C functions on the simulated CUDA driver. Each scenario runs in a separate process, because the
//! driver and the environment are read once.
#![allow(unsafe_code, reason = "the functions under test are called from C")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::{env, fs, ptr};

use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::{
    Driver as _, HandleKind, SharedHandle, SharedPage, VirtualMemory as _,
};
use coalesce_torch::interface::*;
use coalesce_torch::opened::OpenedPages;
use coalesce_torch::text::coalesce_release_text;
use serde_json::Value;
use simcuda::library;

/// Set in a child process to the name of its scenario.
const CHILD: &str = "COALESCE_TORCH_CHILD";
const MIB: isize = 1 << 20;
const DEFAULT: *mut c_void = ptr::null_mut();

/// Runs `scenario` of the test `test` in a child process with these variables and the simulated driver.
/// Returns its standard error.
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
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{stdout}{stderr}");
    fs::remove_dir_all(folder).unwrap();
    stderr
}

fn reply(text: *mut c_char) -> Value {
    // SAFETY: the text comes from the library and is freed once.
    let json = unsafe {
        let json = CStr::from_ptr(text).to_str().unwrap().to_owned();
        coalesce_release_text(text);
        json
    };
    serde_json::from_str(&json).unwrap()
}

fn statistic(device: i32, key: &str) -> i64 {
    reply(coalesce_memory_stats(device))["value"][key]
        .as_i64()
        .unwrap()
}

#[test]
fn pages_of_other_processes_are_opened_and_closed() {
    let test = "pages_of_other_processes_are_opened_and_closed";
    over_simcuda(test, &[("FAKE_TOTAL_BYTES", "64M")], || {
        const PAGE: u64 = 2 << 20;
        let mut device = CudaDevice::open(0, StreamHandles::Numbered).unwrap();
        let kind = HandleKind::FileDescriptor;
        let memory = [PAGE, PAGE, 32 * PAGE].map(|bytes| device.create(bytes, kind));
        assert!(memory[2].is_err(), "the device is full");
        let shared = [0, 1].map(|page| {
            let handle = device.export(memory[page].clone().unwrap(), kind).unwrap();
            let bytes = PAGE;
            SharedPage { bytes, handle }
        });
        let free = |device: &mut CudaDevice| device.memory_info().unwrap().free;
        let before = free(&mut device);

        let pages = OpenedPages::open(&mut device, &shared).unwrap();
        assert_eq!(free(&mut device), before - 2 * PAGE);
        let end = pages.start().offset(2 * PAGE);
        let taken = device.map(pages.start(), PAGE, memory[0].clone().unwrap());
        assert!(taken.is_err() && device.set_access(pages.start(), 2 * PAGE).is_ok());
        assert!(device.set_access(end, PAGE).is_err());
        pages.close(&mut device).unwrap();
        assert_eq!(free(&mut device), before);

        let handle = SharedHandle::FileDescriptor(9999);
        let stranger = SharedPage {
            handle,
            ..shared[0]
        };
        let of = |bytes| SharedPage { bytes, ..shared[1] };
        for pages in [
            &[shared[0], stranger] as &[_],
            &[shared[0], of(2 * PAGE)],
            &[],
            &[of(0)],
            &[shared[0], of(0)],
            &[shared[0], of(u64::MAX)],
        ] {
            assert!(OpenedPages::open(&mut device, pages).is_err());
            assert_eq!(free(&mut device), before, "nothing is left");
        }
    });
}

#[test]
fn memory_comes_from_the_driver_and_returns_to_it() {
    let test = "memory_comes_from_the_driver_and_returns_to_it";
    let variables = [
        ("FAKE_DEVICE_COUNT", "2"),
        ("COALESCE_TORCH_ALLOC", "history=100"),
    ];
    let stderr = over_simcuda(test, &variables, || {
        assert!(coalesce_configuration_error().is_null());
        assert!(
            coalesce_malloc(0, 0, DEFAULT).is_null(),
            "zero bytes return null"
        );
        let first = coalesce_malloc(3 * MIB, 0, DEFAULT);
        let second = coalesce_malloc_or_throw(MIB, 1, DEFAULT);
        assert_ne!(first, second);
        assert_eq!(statistic(0, "reserved_bytes.all.current"), 20 << 20);
        assert_eq!(statistic(1, "reserved_bytes.all.current"), 2 << 20);
        let mut bytes = 0;
        // SAFETY: `bytes` is a `size_t`.
        let base = unsafe { coalesce_base_allocation(second, &raw mut bytes) };
        assert_eq!((base, bytes), (second, 2 << 20));
        coalesce_record_stream(first, DEFAULT);
        coalesce_record_stream(ptr::without_provenance_mut(64), DEFAULT);
        coalesce_free(first, 3 << 20, 0, DEFAULT);
        coalesce_free(ptr::null_mut(), 0, 0, DEFAULT);
        coalesce_empty_cache();
        assert_eq!(statistic(0, "reserved_bytes.all.current"), 0);
        assert_eq!(statistic(0, "reserved_bytes.all.peak"), 20 << 20);
        assert!(reply(coalesce_reset_peak_stats(0))["value"].is_null());
        assert_eq!(statistic(0, "reserved_bytes.all.peak"), 0);
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
    assert_eq!(stderr, "");
}

#[test]
fn the_named_version_decides_the_keys() {
    let test = "the_named_version_decides_the_keys";
    let variables = [("COALESCE_TORCH_ALLOC", "history=100")];
    let stderr = over_simcuda(test, &variables, || {
        // SAFETY: a C string.
        assert!(unsafe { coalesce_set_torch_version(c"2.13.0+cu130".as_ptr()) }.is_null());
        coalesce_malloc(MIB, 0, DEFAULT);
        let stats = &reply(coalesce_memory_stats(0))["value"];
        assert_eq!(stats.as_object().unwrap().len(), 123);
        let snapshot = &reply(coalesce_snapshot(1))["value"];
        assert_eq!(
            snapshot["device_traces"][0][0]["pool_id"],
            serde_json::json!([0, 0])
        );
        assert_eq!(snapshot["allocator_settings"]["max_cached_size"], -1);
        assert!(snapshot.get("host_traces").is_none(), "from 2.14 on");
    });
    assert_eq!(stderr, "");
}

#[test]
fn failures_return_null_and_are_printed() {
    let variables = [("FAKE_TOTAL_BYTES", "1G")];
    let stderr = over_simcuda("failures_return_null_and_are_printed", &variables, || {
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
        assert_eq!(statistic(0, "num_ooms"), 2);
        assert_eq!(statistic(0, "allocation.all.current"), 1);
    });
    if env::var(CHILD).is_err() {
        let lines: Vec<_> = stderr.lines().collect();
        let expected = [
            "coalesce: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has",
            "coalesce: CUDA out of memory. Tried to allocate 900.00 MiB. GPU 0 has",
            "coalesce: CUDA out of memory. Tried to allocate more than 1EB memory.",
            "coalesce: cannot use device 1: no CUDA device 1: the driver finds 1",
            "coalesce: invalid device pointer: 0x200",
            "coalesce: invalid fraction:nan. Please set within [0, 1].",
        ];
        assert_eq!(lines.len(), expected.len(), "{stderr}");
        for (line, beginning) in lines.into_iter().zip(expected) {
            assert!(line.starts_with(beginning), "{line}");
        }
    }
}

#[test]
fn an_invalid_environment_fails_every_call() {
    let variables = [("COALESCE_TORCH_ALLOC", "policy=bfc;conf=growht:false")];
    let stderr = over_simcuda(
        "an_invalid_environment_fails_every_call",
        &variables,
        || {
            let problem = coalesce_configuration_error();
            assert!(!problem.is_null());
            // SAFETY: the text comes from the library and is freed once.
            unsafe { coalesce_release_text(problem) };
            assert!(coalesce_malloc(1, 0, DEFAULT).is_null());
            let answer = reply(coalesce_memory_stats(0));
            let error = answer["error"].as_str().unwrap();
            assert!(
                error.starts_with("COALESCE_TORCH_ALLOC: settings of bfc: "),
                "{error}"
            );
        },
    );
    if env::var(CHILD).is_err() {
        assert!(
            stderr.starts_with("coalesce: COALESCE_TORCH_ALLOC: settings of bfc: "),
            "{stderr}"
        );
    }
}
