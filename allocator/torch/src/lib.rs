//! The allocators of this workspace, as PyTorch's: `libcoalesce_torch.so` has the C interface that
//! `torch.cuda.memory.CUDAPluggableAllocator` asks for, and `coalesce_torch.py` puts it to use.
//!
//! ```python
//! import coalesce_torch
//! coalesce_torch.enable()  # before the first tensor on a GPU
//! ```
//!
//! - [`conf`] reads `COALESCE_TORCH_ALLOC`: which policy, with which settings.
//! - [`device`] is the allocator of one device, [`devices`] are those of all, behind a lock each.
//! - [`failure`] is what can go wrong; [`exception`] throws it at PyTorch's C++ code, which knows no
//!   other way to be told that there is no memory.
//! - [`reply`] is what Python reads; [`interface`] has the functions that C sees.
//!
//! # What PyTorch asks for
//! It calls for every tensor, without a lock, from any thread (those of autograd, too), with the
//! current device and stream; keeps size, device and stream of each address itself; and gives a tensor
//! back with what it was asked for with. What it lets an allocator offer besides is offered as far as
//! plain functions can: `record_stream`, `empty_cache`, `set_per_process_memory_fraction`, the base of
//! an allocation. Captures of CUDA graphs and `torch.cuda.MemPool` need what is written in C++
//! (`std::function`), and are refused with an error.
//!
//! # What is not done
//! Nothing is given back when the process ends: the driver may be gone before the last tensor is. A
//! device's state is made in the first call that names it, so that a process that uses one of eight
//! devices has a context on one. The lock of a device is held while the driver is asked for memory
//! (`release_lock_on_cudamalloc` has no effect).
//!
//! Sources: PyTorch 2.11, `torch/csrc/cuda/CUDAPluggableAllocator.{h,cpp}`, `torch/csrc/cuda/Module.cpp`,
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
    "a panic is caught at the border, and PyTorch's exceptions pass: build with unwinding"
);

pub mod conf;
pub mod device;
pub mod devices;
#[cfg(unix)]
pub mod exception;
pub mod failure;
pub mod interface;
pub mod reply;
