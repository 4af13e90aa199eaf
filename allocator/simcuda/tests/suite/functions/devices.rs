//! Initialization, contexts, devices and the runtime.

use std::ffi::{CStr, c_char};

use super::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, MIB, NOT_INITIALIZED,
    OUT_OF_MEMORY, SUCCESS, begin, enter, event, malloc, stream,
};
use crate::library::{cuda, ok};
use crate::machine::Machine;

#[test]
fn calls_need_cu_init_and_a_current_context() {
    Machine::with(&[]).run(|| {
        let mut value = 0_u64;
        let mut count = -1_i32;
        assert_eq!(cuda!(cuDeviceGetCount(&raw mut count)), NOT_INITIALIZED);
        ok!(cuInit(0_u32));
        assert_eq!(cuda!(cuMemAlloc_v2(&raw mut value, MIB)), INVALID_CONTEXT);
        assert_eq!(
            cuda!(cuCtxSetCurrent(0x9000_u64)),
            INVALID_CONTEXT,
            "not retained"
        );
        assert_eq!(
            cuda!(cuDevicePrimaryCtxRetain(&raw mut value, 1_i32)),
            INVALID_DEVICE
        );
        enter(0);
        let null: *mut u64 = std::ptr::null_mut();
        assert_eq!(cuda!(cuMemAlloc_v2(null, MIB)), INVALID_VALUE);
        let (mut free, mut total) = (0_u64, 0_u64);
        ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
        assert_eq!(
            (free, total),
            (80 << 30, 80 << 30),
            "failed calls allocate nothing"
        );
        let mut name: *const c_char = std::ptr::null();
        ok!(cuGetErrorName(INVALID_CONTEXT, &raw mut name));
        // SAFETY: the name of a code is static.
        let name = unsafe { CStr::from_ptr(name) };
        assert_eq!(name, c"CUDA_ERROR_INVALID_CONTEXT");
    });
}

#[test]
fn devices_have_their_own_memory_addresses_and_streams() {
    let environment = [("FAKE_DEVICE_COUNT", "2"), ("FAKE_TOTAL_BYTES", "4M")];
    Machine::with(&environment).run(|| {
        begin();
        let (first, event) = (malloc(4 * MIB), event());
        enter(1);
        let (second, stream) = (malloc(4 * MIB), stream());
        assert!(first.abs_diff(second) > 1 << 40);
        assert_eq!(
            cuda!(cuEventRecord(event, stream)),
            INVALID_HANDLE,
            "of another device"
        );
        ok!(cuStreamWaitEvent(stream, event, 0_u32));
        assert_eq!(
            cuda!(cuMemFree_v2(first)),
            SUCCESS,
            "any device may be current"
        );
        let mut again = 0_u64;
        assert_eq!(cuda!(cuMemAlloc_v2(&raw mut again, MIB)), OUT_OF_MEMORY);
        enter(0);
        malloc(4 * MIB);
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

/// The runtime needs no initialization and keeps the last error.
#[test]
fn the_runtime_initializes_itself() {
    let environment = [("FAKE_TOTAL_BYTES", "4M")];
    Machine::with(&environment).run(|| {
        let mut addr = 1_u64;
        ok!(cudaMalloc(&raw mut addr, 0_u64));
        assert_eq!(addr, 0, "0 bytes give a null pointer");
        assert_eq!(cuda!(cudaMalloc(&raw mut addr, 5 * MIB)), OUT_OF_MEMORY);
        ok!(cudaMalloc(&raw mut addr, MIB));
        assert_eq!(cuda!(cudaPeekAtLastError()), OUT_OF_MEMORY);
        assert_eq!(cuda!(cudaGetLastError()), OUT_OF_MEMORY);
        ok!(cudaGetLastError());
        let mut kind = [9_i32; 22];
        ok!(cudaPointerGetAttributes(kind.as_mut_ptr(), addr));
        assert_eq!(kind[..2], [2, 0], "memory of the first device");
        let mut copied = [9_u8; 4];
        let status = cuda!(cudaMemcpy(copied.as_mut_ptr(), addr, 4_u64, 4_i32));
        assert_eq!((status, copied), (SUCCESS, [0; 4]));
    });
}
