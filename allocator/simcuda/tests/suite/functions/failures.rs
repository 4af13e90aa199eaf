//! Missing features, injected failures and the log.

use std::ffi::{CStr, c_char};

use super::{
    INVALID_VALUE, MIB, NO_DEVICE, NOT_FOUND, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, attribute,
    begin, malloc, on_device,
};
use crate::library::{self, Library, cuda, folder, ok};
use crate::machine::Machine;

#[test]
fn variables_take_features_away() {
    let without = [
        ("FAKE_NO_DEVICE", "1"),
        ("FAKE_NO_VMM", "1"),
        ("FAKE_NO_POOLS", "1"),
        ("FAKE_DRIVER_VERSION", "12040"),
        ("FAKE_ADDR", "sideways"),
    ];
    for (variable, value) in without {
        Machine::with(&[(variable, value)]).run(|| {
            let is = |name: &str| std::env::var(name).is_ok();
            let mut place = 0_u64;
            if is("FAKE_NO_DEVICE") {
                assert_eq!(cuda!(cuInit(0_u32)), NO_DEVICE);
                let mut count = -1_i32;
                assert_eq!(cuda!(cudaGetDeviceCount(&raw mut count)), NO_DEVICE);
                assert_eq!(count, 0);
                return;
            }
            if is("FAKE_ADDR") {
                assert_eq!(cuda!(cuInit(0_u32)), NOT_INITIALIZED);
                return;
            }
            begin();
            if is("FAKE_NO_VMM") {
                assert_eq!(attribute(102), 0);
                let what = on_device(0);
                let created = cuda!(cuMemCreate(&raw mut place, 2 * MIB, what.as_ptr(), 0_u64));
                assert_eq!(created, NOT_SUPPORTED);
            }
            if is("FAKE_NO_POOLS") {
                assert_eq!(attribute(115), 0);
                let status = cuda!(cuMemAllocAsync(&raw mut place, MIB, 0_u64));
                assert_eq!(status, NOT_SUPPORTED);
            }
            let mut version = 0_i32;
            ok!(cuDriverGetVersion(&raw mut version));
            let expected = if is("FAKE_DRIVER_VERSION") {
                12040
            } else {
                13000
            };
            assert_eq!(version, expected);
        });
    }
}

#[test]
fn functions_fail_as_injected() {
    let environment = [("FAKE_FAIL", "cuMemAlloc_v2:9999:2,cuMemFree_v2:700")];
    Machine::with(&environment).run(|| {
        begin();
        let mut addr = malloc(MIB);
        for _ in 0..2 {
            assert_eq!(cuda!(cuMemAlloc_v2(&raw mut addr, MIB)), 9999);
        }
        assert_eq!(cuda!(cuMemFree_v2(addr)), 700);
        let mut name: *const c_char = c"".as_ptr();
        assert_eq!(
            cuda!(cuGetErrorName(9999_i32, &raw mut name)),
            INVALID_VALUE
        );
        assert!(name.is_null());
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
