//! CUDA without a GPU: the [simulated device](coalesce_alloc::driver::sim) behind CUDA's own functions.
//!
//! A program that was built for CUDA, unchanged, calls these functions instead of NVIDIA's and finds
//! devices whose memory is only numbers. What they answer follows from the rules of [`SimDevice`], the
//! environment and the calls alone, so that a run can be repeated exactly.
//!
//! - The shared library is a `libcuda.so.1`: the driver's interface, for programs that load it at run
//!   time. It offers the runtime's functions as well.
//! - The archive `libsimcuda.a` is what `scripts/conformance/Makefile` links a `libcudart.so.13` from, for
//!   PyTorch and others that were linked against it.
//!
//! The functions are those that the programs of this repository and PyTorch 2.11 call, with the
//! signatures of CUDA 13.0. Graphs, textures, NVML and talk between processes are not there. **No kernel
//! is run.** A launch succeeds and does nothing, but for the two kernels that [`contents`] carries
//! out.
//!
//! # Environment
//!
//! Read once, at the first call. Amounts of memory as in `24G`, `80GiB` or `0x200000`.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_TOTAL_BYTES` | memory of each device; 80 GiB |
//! | `FAKE_FOREIGN_BYTES` | bytes of it that other processes hold; 0 |
//! | `FAKE_ADDR` | where memory is placed: `up`, `down` or `firstfit` |
//! | `FAKE_ADDR_BASE` | the first address, or the end of the first range for `down` |
//! | `FAKE_HOLD_EVENTS` | 1: recorded events stay pending until completed or waited for |
//! | `FAKE_FREE_SYNCS` | 1: a free completes all pending events, as on a real device |
//! | `FAKE_{MALLOC,FREE,MAP,UNMAP}_NS` | how long such a call takes at least; 0 |
//! | `FAKE_DEVICE_COUNT` | devices, at most 16, each with memory and addresses of its own; 1 |
//! | `FAKE_PEERS` | 1: a driver that says of any two devices that they can work on each other's memory; who may is not checked |
//! | `FAKE_CC` | compute capability; 9.0 |
//! | `FAKE_BOOL` | what a copy of a single byte from the device reads as, without contents; 0 |
//! | `FAKE_MEMORY` | 1: memory has [contents] |
//! | `FAKE_LOG` | file that the calls are appended to at exit |
//!
//! Devices that are not as they should be:
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_NO_DEVICE` | 1: a driver without a device |
//! | `FAKE_NO_VMM` | 1: a device without virtual memory |
//! | `FAKE_NO_POOLS` | 1: a device without stream-ordered pools |
//! | `FAKE_DRIVER_VERSION` | the CUDA version of the driver, as in 12080; 13000 |
//! | `FAKE_MISSING` | `NAME[,NAME]`: functions that `cuGetProcAddress` does not find. Who looks them up with `dlsym` is given a library [without them](library::without) |
//! | `FAKE_FAIL` | `NAME:CODE[:N][,…]`: the `N`-th and all later calls of a function do nothing and return `CODE`, which need not be a code that CUDA has |
//!
//! What the oracle of `scripts/conformance` needs besides is in [`control`].
//!
//! [`SimDevice`]: coalesce_alloc::driver::sim::SimDevice

mod border;
pub mod contents;
mod context;
pub mod control;
pub mod driver_api;
mod errors;
mod events;
mod host;
pub mod library;
mod memory;
mod modules;
mod pools;
mod properties;
pub mod runtime_api;
mod settings;
mod state;
mod streams;
mod transfer;
