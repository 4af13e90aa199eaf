//! Coalesce as the allocator of PyTorch: `libcoalesce_torch.so`, which the Python package `coalesce_torch` installs.
//!
//! ```python
//! import coalesce_torch
//! coalesce_torch.enable()  # before the first use of CUDA
//! ```
//!
//! - [`conf`] reads the policy and its settings from `COALESCE_TORCH_ALLOC`.
//! - [`device`] is the allocator of one device; [`devices`] are those of all devices, each behind a lock.
//! - [`cuda_allocator`] are the C functions behind the C++ class that implements PyTorch's `CUDAAllocator`
//!   (`python/coalesce_torch/cpp`, compiled on the machine where PyTorch is installed).
//! - [`interface`] exports the C functions for `CUDAPluggableAllocator`, which serves where that class cannot be
//!   compiled, and those for Python; [`reply`] formats the answers for Python.
//! - [`hardened`] explains wrong uses of memory.
//! - [`opened`] are pages of other processes.
//! - `process` has the devices of this process; [`text`] are texts that C programs own.
//! - [`failure`] is an error; [`exception`] throws it into PyTorch's C++ code for the pluggable allocator.
//!
//! # What PyTorch requires
//! PyTorch calls the allocator for every tensor, without a lock, from any thread (including those of
//! autograd), with the current device and stream. CUDA graphs, `torch.cuda.MemPool`, histories with stacks and memory
//! shared between processes need the complete C++ class: its arguments are C++ objects.
//!
//! # Limitations
//! Memory is not freed at the end of the process, because the driver may be unloaded before the last tensor
//! is freed. The first call for a device creates its state, so a process that uses one of eight devices has
//! one context. With `release_lock_on_cudamalloc`, the C++ class releases the lock of a device during `cuMemAlloc`, but
//! not while the allocator of a MemPool is called.
//!
//! Sources: PyTorch 2.6 to 2.15, `c10/cuda/CUDACachingAllocator.{h,cpp}`,
//! `torch/csrc/cuda/CUDAPluggableAllocator.{h,cpp}`, `torch/csrc/cuda/Module.cpp`, `torch/cuda/memory.py`.

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
pub mod hardened;
pub mod interface;
pub mod opened;
mod process;
pub mod reply;
pub mod text;
