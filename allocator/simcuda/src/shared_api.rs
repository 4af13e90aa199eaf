//! The functions that the driver and the runtime both have, with the same arguments and the same effect.
#![allow(missing_docs, reason = "CUDA documents its functions")]
#![expect(unsafe_code, reason = "functions that C calls")]

mod device;
mod graph;
mod ipc;
mod memory;
pub(crate) mod stream;
