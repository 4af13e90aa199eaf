//! The driver's interface (`cuda.h` of CUDA 13.0): functions named `cu…`.
//!
//! Pointers of the program that the driver only passes on, handles and device addresses are 64-bit numbers
//! here, and so are sizes (`size_t`): CUDA has been for 64-bit machines only since 12.0. A function with
//! several versions has that of the version that CUDA 13's headers, cudarc 0.19 and PyTorch 2.11 call.
#![allow(missing_docs, reason = "CUDA's functions, documented there")]

mod context;
mod copy;
mod device;
mod errors;
mod event;
mod lookup;
mod memory;
mod module;
mod pool;
mod stream;
mod virtual_memory;

const _: () = assert!(
    size_of::<usize>() == size_of::<u64>(),
    "for 64-bit machines"
);

pub(crate) use self::lookup::find;
pub(crate) use self::pool::{get_attribute, set_attribute};
