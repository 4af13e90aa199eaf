//! Coalesce as the allocator of PyTorch: `libcoalesce_torch.so` has the C interface that
//! `torch.cuda.memory.CUDAPluggableAllocator` requires, and the Python package `coalesce_torch` installs it.
//!
//! ```python
//! import coalesce_torch
//! coalesce_torch.enable()  # before the first tensor on a GPU
//! ```
//!
//! - [`conf`] reads the policy and its settings from `COALESCE_TORCH_ALLOC`.
//! - [`device`] is the allocator of one device; [`devices`] are those of all devices, each behind a lock.
//! - [`failure`] is an error; [`exception`] throws it into PyTorch's C++ code, the only way to report an
//!   out-of-memory error.
//! - [`reply`] formats the answers for Python; [`interface`] exports the C functions.
//!
//! # What PyTorch requires
//! PyTorch calls the allocator for every tensor, without a lock, from any thread (including those of
//! autograd), with the current device and stream. It records size, device and stream of each address and
//! passes them to free. Of the optional hooks, plain C functions can implement `record_stream`,
//! `empty_cache`, `set_per_process_memory_fraction` and the base of an allocation. CUDA graph capture and
//! `torch.cuda.MemPool` require C++ (`std::function`) and are refused with an error.
//!
//! # Limitations
//! Memory is not freed at the end of the process, because the driver may be unloaded before the last tensor
//! is freed. The first call for a device creates its state, so a process that uses one of eight devices has
//! one context. The lock of a device is held during driver calls (`release_lock_on_cudamalloc` has no
//! effect).
//!
//! Sources: PyTorch 2.6 to 2.15, `torch/csrc/cuda/CUDAPluggableAllocator.{h,cpp}`, `torch/csrc/cuda/Module.cpp`,
//! `torch/cuda/memory.py`.

// No panic is reachable from outside.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

#[cfg(not(panic = "unwind"))]
compile_error!(
    "build with panic = \"unwind\": panics are caught at the C interface, and C++ exceptions pass through it"
);

pub mod conf;
pub mod cuda_allocator;
pub mod device;
pub mod devices;
#[cfg(unix)]
pub mod exception;
pub mod failure;
pub mod interface;
pub mod reply;
