//! CUDA's functions, called as by a program that loads `libcuda.so.1`. `transcripts.rs` has the calls whose arguments are
//! numbers and places.

mod contents;
mod devices;
mod failures;
mod graphs;
mod libraries;

use crate::library::ok;

const MIB: u64 = 1 << 20;

/// Status codes.
const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const INVALID_IMAGE: i32 = 200;
const INVALID_CONTEXT: i32 = 201;
const FILE_NOT_FOUND: i32 = 301;
const NOT_FOUND: i32 = 500;
const NOT_READY: i32 = 600;
const ILLEGAL_ADDRESS: i32 = 700;

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

/// The `CUmemAllocationProp` of memory on a device.
fn on_device(device: i32) -> [i32; 8] {
    [1, 1, 1, device, 0, 0, 0, 0]
}
