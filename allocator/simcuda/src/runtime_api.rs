//! The runtime's interface (`cuda_runtime_api.h` of CUDA 13.0): functions named `cuda…`.
//!
//! It is a layer over the same state as the [driver's](crate::driver_api), with two habits of its own: it
//! makes the first device current where none is, and keeps the last failure of each thread. Numbers as there.
#![allow(missing_docs, reason = "CUDA's functions, documented there")]

mod copy;
mod device;
mod errors;
mod event;
mod graph;
mod host;
mod lookup;
mod memory;
mod pool;
mod properties;
mod stream;
