//! The caching allocator of PyTorch 2.6 to 2.15, decision for decision, over a simulated or a real device.
//! Other GPU memory allocators in use today implement the same interface.
//!
//! An allocator takes *segments* of memory from a device, cuts them into *blocks*, and keeps freed
//! blocks in *pools* for reuse:
//!
//! ```text
//!  segment, 20 MiB from cudaMalloc                        segment, 2 MiB
//! ┌──────────────┬────────────┬───────────────────────┐  ┌──────┬──────┬──────────────────────┐
//! │ block        │ block      │ block                 │  │ block│ block│ block                │
//! │ allocated    │ free       │ allocated             │  │ alloc│ wait │ free                 │
//! └──────────────┴─────┬──────┴───────────────────────┘  └──────┴──┬───┴──────────┬───────────┘
//!     prev ◄───────────┼──► next                                   │              │
//!                      ▼                                           ▼              ▼
//!         large pool: free blocks by            queue of a stream: waits     small pool
//!         (stream, size, address)               for its event
//! ```
//!
//! - [`driver`] defines what an allocator needs from a device. [`driver::sim`] is the simulated device;
//!   `driver::cuda`, with the feature `cuda`, is a real one.
//! - [`Allocator`] is the interface of every allocator. [`pytorch`] is the reference. Every other allocator
//!   is a [`policy`] that makes decisions only; [`Managed`] turns it into an allocator.
//! - [`registry`] lists the allocators, and builds one by its name.
//! - An offline policy knows the workload in advance: it plans from the
//!   [`lifetimes`] of its requests, and [`placement`] computes addresses from them.
//! - Adaptors wrap an allocator or a driver. [`driver::hooks`] observe driver calls: they count, charge,
//!   limit, log or fail them. [`WithHistory`] records a history; [`Verified`] checks the contents of memory;
//!   [`Busy`] runs kernels between requests.
//! - [`settings`] parses `PYTORCH_CUDA_ALLOC_CONF`. Allocators report through [`stats`], [`history`],
//!   [`snapshot`] and [`error`], and through [`Violation`] if their own state is broken.
//! - [`glossary`] defines the terms and names PyTorch's counters.
//!
//! The example `own_policy` is a complete program. `replay_trace` and `compare_policies`, in `coalesce-workloads`, are
//! two more.
//!
//! Dependencies run one way: adaptors and `registry` → `managed` → `policy` → `pytorch` and `lifetimes` → `settings`,
//! `placement` and the reporting modules → `driver` → `base`. A policy never names a concrete driver, and a driver never
//! names a block.
//!
//! # The life of one malloc
//!
//! A tensor of 3,000,000 bytes is allocated on the default stream while nothing is cached.
//!
//! 1. [`malloc`](PyTorch::malloc) in `pytorch.rs` first calls `events.rs`, which frees blocks whose
//!    streams have finished.
//! 2. `size.rs` rounds the request up to 3,000,320 bytes, a multiple of 512. The size exceeds 1 MiB, so the
//!    large pool serves it. `private_pool.rs` finds no private pool for this stream.
//! 3. `fit.rs` searches the pool for the smallest free block of this stream that is large enough. `pool.rs`
//!    and `ordered.rs` keep the blocks sorted. The search finds none.
//! 4. `retry_ladder.rs` tries each further source of memory in turn. Garbage collection
//!    (`garbage_collect.rs`) is off, so `segment.rs` requests a segment from the driver. The request is below
//!    10 MiB, so the segment has 20 MiB; the simulated device places it at `0x20000000000`. With expandable
//!    segments, `expandable.rs` would map one 20 MiB page instead. If the device refused, `release.rs` would
//!    return cached memory before the last attempt.
//! 5. `split.rs` finds a remainder of 17,971,200 bytes. It exceeds 1 MiB, so the block is split and the
//!    remainder goes to the large pool.
//! 6. `pytorch.rs` updates the statistics and the history, adds the block to the table of live
//!    addresses, and returns `0x20000000000`.
//!
//! On free, `merge.rs` coalesces the block with its free neighbours: none before it, the remainder after
//! it. All 20 MiB return to the pool. They go back to the device only when memory runs short or the
//! cache is emptied.
//!
//! ```
//! use coalesce_alloc::{PyTorch, Settings, SimConfig, SimDevice, StreamId};
//!
//! let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
//! let mut allocator = PyTorch::new(device, Settings::default());
//! let tensor = allocator.malloc(3_000_000, StreamId::DEFAULT)?;
//! assert_eq!(tensor.to_string(), "0x20000000000");
//! assert_eq!(allocator.stats().allocated_bytes.all().current, 3_000_320);
//! assert_eq!(allocator.stats().reserved_bytes.all().current, 20 << 20);
//! allocator.free(tensor)?;
//! assert_eq!(allocator.stats().allocated_bytes.all().current, 0);
//! assert_eq!(allocator.stats().reserved_bytes.all().current, 20 << 20);
//! allocator.empty_cache()?;
//! assert_eq!(allocator.stats().reserved_bytes.all().current, 0);
//! # Ok::<(), coalesce_alloc::Error>(())
//! ```
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
// Only the CUDA driver needs unsafe code.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]
// No input makes the library panic.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

// First, for its macros.
#[macro_use]
mod base;

mod adaptor;
mod allocator;
mod checkpoint;
pub mod driver;
pub mod error;
pub mod history;
pub mod lifetimes;
mod managed;
mod mempool;
pub mod placement;
pub mod policy;
mod private_pools;
pub mod pytorch;
pub mod registry;
pub mod release;
pub mod settings;
pub mod snapshot;
pub mod stats;

pub use self::adaptor::busy::{Busy, Kernels};
pub use self::adaptor::scheduled;
pub use self::adaptor::verified::{Corruption, Verification, Verified};
pub use self::adaptor::with_history::WithHistory;
pub use self::allocator::{Allocator, ONE_EXABYTE};
pub use self::base::check::Violation;
pub use self::base::shared::{Shared, SharedGuard};
pub use self::base::{bytes, printable};
pub use self::checkpoint::{Checkpoint, RestoredPool};
pub use self::driver::sim::{SimConfig, SimDevice};
pub use self::driver::{DeviceAddr, Driver, StreamId};
pub use self::error::Error;
pub use self::managed::Managed;
pub use self::mempool::{MempoolId, PoolCall, PoolSource, StreamFilter};
pub use self::policy::Policy;
pub use self::private_pools::HasPrivatePools;
pub use self::pytorch::PyTorch;
pub use self::settings::Settings;

#[doc = include_str!("../GLOSSARY.md")]
pub mod glossary {}
