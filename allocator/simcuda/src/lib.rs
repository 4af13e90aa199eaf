//! CUDA without a GPU: the [simulated device](coalesce_alloc::driver::sim) behind CUDA's own functions.
//!
//! An unchanged program built for CUDA calls these functions instead of NVIDIA's and finds devices whose
//! memory exists only as numbers. The results depend only on the rules of [`SimDevice`], the environment
//! and the calls, so that a run can be repeated exactly.
//!
//! - The shared library is a `libcuda.so.1`, for programs that load the driver at run time. It contains
//!   the functions of the runtime as well.
//! - `standins/build` makes a `libcudart.so` for CUDA 12 and 13 that leads to it, and stand-ins for the other
//!   libraries that PyTorch needs.
//!
//! The functions are those that the programs of this repository, PyTorch 2.11 and the cuDNN and cuBLAS of its
//! wheels call, with the signatures of CUDA 13.0. Textures and graphs made node by node are missing; NVML is one of the stand-ins. **No kernel runs.** A launch succeeds
//! and does nothing, except for the kernels that [`contents`] executes. A captured stream gets a node for
//! each of its launches, fills and copies, and a graph does them when it is launched.
//!
//! # Environment
//!
//! Read once, at the first call. Amounts of memory as in `24G`, `80GiB` or `0x200000`.
//!
//! | variable | meaning, and default |
//! |---|---|
//! | `FAKE_TOTAL_BYTES` | memory of each device; 80 GiB |
//! | `FAKE_FOREIGN_BYTES` | bytes of it used by other processes; 0 |
//! | `FAKE_ADDR` | address policy: `up`, `down` or `firstfit` |
//! | `FAKE_ADDR_BASE` | the first address, or for `down` the end of the first range |
//! | `FAKE_HOLD_EVENTS` | 1: recorded events stay pending until completed or waited for |
//! | `FAKE_FREE_SYNCS` | 1: a free completes all pending events, as on a real device |
//! | `FAKE_{MALLOC,FREE,MAP,UNMAP}_NS` | minimum duration of such a call; 0 |
//! | `FAKE_DEVICE_COUNT` | number of devices, at most 16, each with its own memory and addresses; 1 |
//! | `FAKE_PEERS` | 1: the driver reports that any two devices can access each other's memory; access is not checked |
//! | `FAKE_FABRIC` | 1: memory can be shared between machines (`CU_MEM_HANDLE_TYPE_FABRIC`) |
//! | `FAKE_NAME` | name of every device |
//! | `FAKE_CC` | compute capability; 9.0 |
//! | `FAKE_MULTIPROCESSORS` | number of multiprocessors; 132, or 108 below compute capability 9.0 |
//! | `FAKE_BOOL` | value that a copy of a single byte from the device reads, without contents; 0 |
//! | `FAKE_LIBRARIES` | 1: CUDA and its libraries take memory of the device, as on an H100. `CUDA_MODULE_LOADING` is respected |
//! | `FAKE_MEMORY` | 1: memory has [contents] |
//! | `FAKE_LOG` | file to which the calls are appended at exit |
//!
//! Devices with missing or failing features:
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_NO_DEVICE` | 1: a driver without a device |
//! | `FAKE_NO_VMM` | 1: a device without virtual memory |
//! | `FAKE_NO_POOLS` | 1: a device without stream-ordered pools |
//! | `FAKE_DRIVER_VERSION` | the CUDA version of the driver, as in 12080; 13000 |
//! | `FAKE_MISSING` | `NAME[,NAME]`: functions that `cuGetProcAddress` does not find. For programs that use `dlsym`, make a library [without them](library::without) |
//! | `FAKE_FAIL` | `NAME:CODE[:N][,…]`: the `N`-th and all later calls of a function do nothing and return `CODE`, which may be any number |
//!
//! [`control`] has further functions for the oracle of `scripts/conformance`.
//!
//! [`SimDevice`]: coalesce_alloc::driver::sim::SimDevice

mod border;
mod captures;
pub mod contents;
mod context;
pub mod control;
pub mod driver_api;
mod errors;
mod events;
mod graphs;
mod host;
mod ipc;
pub mod library;
mod library_memory;
mod memory;
mod modules;
mod occupancy;
mod pools;
mod properties;
pub mod runtime_api;
mod settings;
pub mod shared_api;
mod state;
mod streams;
mod transfer;
mod watchdogs;
