//! CUDA's functions, called as by a program that loads `libcuda.so.1`: what threads and processes share, and the library itself.
//! `transcripts.rs` has all other calls.

use std::ffi::CStr;

use crate::library::{self, Library, cuda, folder, ok};
use crate::machine::Machine;

const MIB: u64 = 1 << 20;

/// Status codes.
const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_CONTEXT: i32 = 201;
const NOT_FOUND: i32 = 500;

/// Initializes the driver and makes the context of the first device current.
fn begin() {
    ok!(cuInit(0_u32));
    enter(0);
}

fn enter(device: i32) {
    let mut context = 0_u64;
    ok!(cuDevicePrimaryCtxRetain(&raw mut context, device));
    ok!(cuCtxSetCurrent(context));
}

fn malloc(bytes: u64) -> u64 {
    let mut addr = 0_u64;
    ok!(cuMemAlloc_v2(&raw mut addr, bytes));
    addr
}

#[test]
fn each_thread_has_its_own_current_device() {
    Machine::with(&[("FAKE_DEVICE_COUNT", "4")]).run(|| {
        begin();
        let work_on = |device: i32| {
            let mut addr = 0_u64;
            let status = cuda!(cuMemAlloc_v2(&raw mut addr, MIB));
            assert_eq!(
                status, INVALID_CONTEXT,
                "the first thread's context is not current here"
            );
            enter(device);
            for _ in 0..1000 {
                let addr = malloc(MIB);
                assert_eq!(addr >> 48, device as u64);
                ok!(cuMemFree_v2(addr));
            }
        };
        std::thread::scope(|scope| {
            for device in 0..4 {
                scope.spawn(move || work_on(device));
            }
        });
        assert_eq!(malloc(MIB) >> 48, 0);
    });
}

#[test]
fn functions_are_found_by_name_or_missing() {
    let environment = [("FAKE_MISSING", "cuMemCreate")];
    Machine::with(&environment).run(|| {
        let find = |name: &CStr| {
            let (mut found, mut status) = (1_u64, -1_i32);
            let code = cuda!(cuGetProcAddress_v2(
                name.as_ptr(),
                &raw mut found,
                12080_i32,
                0_u64,
                &raw mut status
            ));
            (code, status, found)
        };
        let (code, status, found) = find(c"cuMemAlloc");
        assert_eq!((code, status), (SUCCESS, 0));
        assert_eq!(found, library::driver().symbol("cuMemAlloc_v2") as u64);
        assert_eq!(find(c"cuMemCreate"), (NOT_FOUND, 1, 0));
        assert_eq!(find(c"cuMemRecreate"), (NOT_FOUND, 1, 0));
        assert_eq!(find(c"cudaMalloc"), (NOT_FOUND, 1, 0), "the runtime's");
    });
}

#[test]
fn a_library_can_lack_a_function() {
    let folder = folder("a_library_can_lack_a_function");
    simcuda::library::place_without(&folder, "cuMemAddressReserve").unwrap();
    assert!(simcuda::library::place_without(&folder, "cuMemPreserve").is_err());
    let older = Library::load(&folder.join(simcuda::library::NAME));
    assert!(older.symbol("cuMemAddressReserve").is_null());
    assert!(!older.symbol("cuMemAddressFree").is_null());
}

#[test]
fn the_log_is_written_at_exit() {
    let folder = folder("the_log_is_written_at_exit");
    let path = folder.join("log");
    let log = path.to_str().unwrap();
    Machine::with(&[("FAKE_LOG", log)]).run(|| {
        begin();
        let addr = malloc(1000);
        ok!(cuMemFree_v2(addr));
    });
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, "malloc 1000 0x20000000000\nfree 0x20000000000\n");
}

#[test]
fn memory_is_opened_by_other_processes_alone() {
    Machine::with(&[]).run(|| {
        begin();
        let (addr, mut other) = (malloc(MIB), 0_u64);
        let mut handle = [0_u64; 8];
        ok!(cuIpcGetMemHandle(handle.as_mut_ptr(), addr));
        let inside = cuda!(cuIpcGetMemHandle(handle.as_mut_ptr(), addr + 512));
        assert_eq!(inside, INVALID_VALUE, "not the start of an allocation");
        let mut pooled = 0_u64;
        ok!(cuMemAllocAsync(&raw mut pooled, MIB, 0_u64));
        let of_pool = cuda!(cuIpcGetMemHandle(handle.as_mut_ptr(), pooled));
        assert_eq!(of_pool, INVALID_VALUE, "memory of a pool");
        let same = cuda!(cuIpcOpenMemHandle_v2(&raw mut other, handle, 1_u32));
        assert_eq!(same, INVALID_CONTEXT);
        // The second word is the process.
        handle[1] += 1;
        let mut opened = [0_u64; 2];
        for place in &mut opened {
            ok!(cuIpcOpenMemHandle_v2(&raw mut *place, handle, 1_u32));
        }
        assert_eq!(opened[0], opened[1]);
        assert_ne!(opened[0], addr);
        ok!(cuIpcCloseMemHandle(opened[0]));
        ok!(cuIpcCloseMemHandle(opened[0]));
        assert_eq!(cuda!(cuIpcCloseMemHandle(opened[0])), INVALID_VALUE);
    });
}
