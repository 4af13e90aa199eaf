//! CUDA's functions, called as by a program that loads `libcuda.so.1`.

mod contents;
mod devices;
mod failures;
mod graphs;
mod memory;

use crate::library::ok;

const MIB: u64 = 1 << 20;

/// Status codes.
const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_INITIALIZED: i32 = 3;
const NO_DEVICE: i32 = 100;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const ILLEGAL_STATE: i32 = 401;
const NOT_FOUND: i32 = 500;
const NOT_READY: i32 = 600;
const ILLEGAL_ADDRESS: i32 = 700;
const NOT_SUPPORTED: i32 = 801;
const CAPTURE_UNSUPPORTED: i32 = 900;
const CAPTURE_INVALIDATED: i32 = 901;
const CAPTURE_UNJOINED: i32 = 904;
const CAPTURE_ISOLATION: i32 = 905;
const CAPTURED_EVENT: i32 = 907;

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

fn stream() -> u64 {
    let mut stream = 0_u64;
    ok!(cuStreamCreate(&raw mut stream, 1_u32));
    stream
}

fn event() -> u64 {
    let mut event = 0_u64;
    ok!(cuEventCreate(&raw mut event, 0_u32));
    event
}

fn attribute(number: i32) -> i32 {
    let mut value = -1_i32;
    ok!(cuDeviceGetAttribute(&raw mut value, number, 0_i32));
    value
}

fn pool_attribute(pool: u64, number: i32) -> u64 {
    let mut value = u64::MAX;
    ok!(cuMemPoolGetAttribute(pool, number, &raw mut value));
    value
}

/// The `CUmemAllocationProp` of memory on a device.
fn on_device(device: i32) -> [i32; 8] {
    [1, 1, 1, device, 0, 0, 0, 0]
}
