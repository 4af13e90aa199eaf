//! The driver's interface (`cuda.h` of CUDA 13.0): functions named `cu…`.
//!
//! Handles, device addresses, sizes (`size_t`) and pointers that the driver only passes on are 64-bit
//! numbers here: CUDA supports only 64-bit machines since 12.0. Of a function with several versions, this
//! module has the one that CUDA 13's headers, cudarc 0.19 and PyTorch 2.11 call.
#![allow(missing_docs, reason = "CUDA documents its functions")]
#![expect(unsafe_code, reason = "functions that C calls")]

mod copy;
mod device;
mod ipc;
mod library;
mod lookup;
mod memory;
mod module;
mod occupancy;
mod pointer;
mod stream;

const _: () = assert!(
    size_of::<usize>() == size_of::<u64>(),
    "for 64-bit machines"
);

pub(crate) use self::device::handle_of;
pub(crate) use self::lookup::find;
