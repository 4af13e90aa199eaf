//! Missing functions and the log.

use std::ffi::CStr;

use super::{NOT_FOUND, SUCCESS, begin, malloc};
use crate::library::{self, Library, cuda, folder, ok};
use crate::machine::Machine;

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
