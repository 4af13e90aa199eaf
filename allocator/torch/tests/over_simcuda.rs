//! The C functions on the simulated CUDA driver. Each scenario runs in a separate process, because the
//! driver and the environment are read once.
#![allow(unsafe_code, reason = "the functions under test are called from C")]

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, ptr};

use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::{
    DeviceAddr, Driver as _, HandleKind, SharedHandle, SharedPage, VirtualMemory as _,
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

/// The line that the program is in.
static LINE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn frames(to: *mut u8, capacity: usize) -> usize {
    let frames = format!(
        "a.py:{} in step\na.py:1 in main",
        LINE.load(Ordering::Relaxed)
    );
    assert!(frames.len() <= capacity);
    // SAFETY: there is room.
    unsafe { ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len()) };
    frames.len()
}

/// `cuMemsetD8_v2` of the driver: writes to memory without any allocator.
fn write(addr: *mut c_void, byte: usize) {
    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    type Memset = extern "C" fn(u64, u8, usize) -> i32;
    // SAFETY: the function has this type.
    let memset = unsafe {
        let library = dlopen(c"libcuda.so.1".as_ptr(), 2);
        std::mem::transmute::<*mut c_void, Memset>(dlsym(library, c"cuMemsetD8_v2".as_ptr()))
    };
    memset((addr.addr() + byte) as u64, 7, 1);
}

fn at(line: usize) {
    LINE.store(line, Ordering::Relaxed);
}

/// What is wrong is printed with all stacks, and nothing is said of what a program may do.
#[test]
fn wrong_uses_of_memory_are_reported() {
    let variables = [
        ("FAKE_MEMORY", "1"),
        ("FAKE_TOTAL_BYTES", "70M"),
        ("FAKE_ADDR", "firstfit"),
        ("COALESCE_TORCH_ALLOC", "harden=poison"),
    ];
    let stderr = over_simcuda("wrong_uses_of_memory_are_reported", &variables, || {
        assert!(coalesce_hardens());
        coalesce_follow_stacks(Some(frames));
        let malloc = |line, mib: isize| {
            at(line);
            coalesce_malloc(mib * MIB, 0, DEFAULT)
        };
        let free = |line, block| {
            at(line);
            coalesce_free(block, 0, 0, DEFAULT);
        };
        let block = malloc(10, 1);
        free(11, block);
        free(12, block);
        free(13, ptr::without_provenance_mut(0x1234));
        let block = malloc(14, 1);
        free(15, block.wrapping_byte_add(512));
        write(block, 7);
        free(16, block);
        free(17, block.wrapping_byte_add(512));
        // What is written before it is freed, or after it is allocated again, is right.
        write(block, 4099);
        let front = malloc(20, 1);
        write(front, 0);
        // Of the part that serves a request, and of the rest.
        let block = malloc(21, 4);
        free(22, block);
        write(block, 2 << 20);
        let front = malloc(23, 2);
        let rest = malloc(24, 2);
        free(25, front);
        free(26, rest);
        // Another stream may still use it.
        let shared = malloc(30, 4);
        coalesce_record_stream(shared, ptr::without_provenance_mut(0x1000));
        free(31, shared);
        write(shared, 0);
        let again = malloc(32, 4);
        free(33, again);
        // The device returned it, so it has other contents.
        let large = malloc(40, 30);
        free(41, large);
        let larger = malloc(42, 46);
        free(43, larger);
        write(larger, 9);
        // At the end, of what no request took.
        coalesce_check_freed();
        coalesce_check_freed();
        coalesce_follow_stacks(None);
    });
    let reports = include_str!("over_simcuda/harden.txt");
    assert!(env::var(CHILD).is_ok() || stderr == reports, "{stderr}");
}

/// Each block ends where unmapped memory begins, and its addresses are not used again soon.
#[test]
fn guarded_blocks_lie_between_unmapped_memory() {
    let variables = [("COALESCE_TORCH_ALLOC", "harden=guard")];
    over_simcuda(
        "guarded_blocks_lie_between_unmapped_memory",
        &variables,
        || {
            let page = 2 * MIB as usize;
            let blocks = [MIB, 3 * MIB, 700].map(|bytes| coalesce_malloc(bytes, 0, DEFAULT));
            let ends = [0, 1].map(|n| blocks[n].addr() + [MIB, 3 * MIB][n] as usize);
            assert!(ends.iter().all(|end| end % page == 0), "{blocks:?}");
            assert_eq!(blocks[2].addr() % page, page - 1024);
            let mut device = CudaDevice::open(0, StreamHandles::Numbered).unwrap();
            let mut is_mapped = |addr: usize| {
                device
                    .set_access(DeviceAddr(addr as u64), page as u64)
                    .is_ok()
            };
            assert!(is_mapped(ends[0] - page) && !is_mapped(ends[0]));
            assert_eq!(statistic(0, "reserved_bytes.all.current"), 8 << 20);
            coalesce_free(blocks[0], 0, 0, DEFAULT);
            assert!(!is_mapped(ends[0] - page));
            assert_ne!(coalesce_malloc(MIB, 0, DEFAULT), blocks[0]);
        },
    );
}

#[test]
fn guards_need_virtual_memory() {
    let variables = [
        ("COALESCE_TORCH_ALLOC", "harden=guard"),
        ("FAKE_NO_VMM", "1"),
    ];
    let stderr = over_simcuda("guards_need_virtual_memory", &variables, || {
        assert!(coalesce_malloc(MIB, 0, DEFAULT).is_null());
    });
    let why = "coalesce: cannot use device 0: it has no virtual memory, which harden=guard needs\n";
    assert!(env::var(CHILD).is_ok() || stderr == why, "{stderr}");
}
