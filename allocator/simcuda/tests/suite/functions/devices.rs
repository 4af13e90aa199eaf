//! Devices of threads, and the names of status codes.

use std::ffi::{CStr, c_char};

use super::{INVALID_CONTEXT, MIB, begin, enter, malloc};
use crate::library::{cuda, ok};
use crate::machine::Machine;

#[test]
fn codes_have_names() {
    Machine::with(&[]).run(|| {
        let mut name: *const c_char = std::ptr::null();
        ok!(cuGetErrorName(INVALID_CONTEXT, &raw mut name));
        // SAFETY: the name of a code is static.
        let name = unsafe { CStr::from_ptr(name) };
        assert_eq!(name, c"CUDA_ERROR_INVALID_CONTEXT");
    });
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
