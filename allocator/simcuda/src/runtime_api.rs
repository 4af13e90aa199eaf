//! The runtime's interface (`cuda_runtime_api.h` of CUDA 13.0): functions named `cuda…`.
//!
//! A layer over the same state as the [driver's interface](crate::driver_api) that makes the first device
//! current on a thread without one and keeps the last failure of each thread. It has the same number types.
#![allow(missing_docs, reason = "CUDA documents its functions")]
#![expect(unsafe_code, reason = "functions that C calls")]

mod copy;
mod device;
mod launch;
mod lookup;
mod memory;
mod properties;
mod stream;
