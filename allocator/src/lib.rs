//! The caching allocator of PyTorch 2.11, decision for decision, over a simulated or a real device; and the
//! other allocators of GPU memory that are in use, behind the same interface.
//!
//! An allocator takes *segments* of memory from a device, cuts them into *blocks*, and keeps freed
//! blocks in *pools* to hand them out again:
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
//! - [`driver`] is what an allocator needs of a device, [`driver::sim`] the simulated one, and `driver::cuda`,
//!   with the feature `cuda`, a real one.
//! - [`mod@allocator`] is what all of them are to their users. [`policy::pytorch`] is the reference. Any
//!   other is a [`policy`], which decides and does nothing else; [`managed`] makes an allocator of it.
//! - An offline policy knows the [`lifetimes`] of a workload's requests in advance; [`placement`] places
//!   them.
//! - What can be wanted of any of them is an adaptor: [`driver::hooks`] count and charge for the driver's
//!   calls, limit them, write them down or let them fail; [`traced`] keeps a history;
//!   [`verified`] looks at what lies in the memory.
//! - [`settings`] parses `PYTORCH_CUDA_ALLOC_CONF`; [`stats`], [`history`], [`snapshot`] and [`error`]
//!   are what a policy reports with; [`check`] is how it says that it is broken; [`mempool`] and
//!   [`bytes`] are words that several of them need.
//! - [`script`] runs the scripts by which all this is compared with PyTorch's own binary.
//!
//! Dependencies run one way: `script` → `policy`, with `managed` → (`allocator`, `history`, `snapshot`,
//! `settings`, `error`, `check`, `lifetimes`, `placement`) → `driver` → `stats`. A policy never names a
//! driver, a driver never names a block; only `script`, on top, knows the simulated device as what it is.
//!
//! # The life of one malloc
//!
//! A tensor of 3,000,000 bytes on the default stream, with nothing cached.
//!
//! 1. [`malloc`](policy::pytorch::DeviceCachingAllocator::malloc) in `pytorch.rs` lets `events.rs`
//!    look whether blocks that waited for other streams are free now.
//! 2. `size.rs` rounds the request up to 3,000,320 bytes, a multiple of 512. More than 1 MiB: the
//!    large pool. `private_pool.rs` says that nothing redirects this stream to a pool of its own.
//! 3. `fit.rs` looks in the pool for the smallest free block of this stream with so many bytes
//!    (`pool.rs` and `ordered.rs` hold them in order) and finds none.
//! 4. `retry_ladder.rs` climbs: `garbage_collect.rs` is off; `segment.rs` asks the driver for a
//!    segment. Less than 10 MiB are asked for, so it has 20 MiB, and the simulated device places it
//!    at `0x20000000000`. (With expandable segments `expandable.rs` would map one 20 MiB page.) Had
//!    the device refused, `release.rs` would have returned cached memory before the last attempt.
//! 5. `split.rs` finds 17,971,200 bytes left over, more than 1 MiB: it cuts them off, and they go to
//!    the large pool.
//! 6. The front is booked in the statistics and the history, entered among the live addresses, and
//!    `0x20000000000` goes back up.
//!
//! When it is freed, `merge.rs` joins it first with the block before it, of which there is none, then
//! with the one after it, and puts the whole 20 MiB back into the pool. Nothing goes back to the
//! device before memory is short or the cache is emptied.
//!
//! ```
//! use coalesce_alloc::driver::StreamId;
//! use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
//! use coalesce_alloc::pytorch::DeviceCachingAllocator;
//! use coalesce_alloc::settings::Settings;
//!
//! let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
//! let mut allocator = DeviceCachingAllocator::new(device, Settings::default());
//! let tensor = allocator.malloc(3_000_000, StreamId::DEFAULT)?;
//! assert_eq!(tensor.to_string(), "0x20000000000");
//! assert_eq!(allocator.stats().allocated_bytes.all.current, 3_000_320);
//! assert_eq!(allocator.stats().reserved_bytes.all.current, 20 << 20);
//! allocator.free(tensor)?;
//! assert_eq!(allocator.stats().allocated_bytes.all.current, 0);
//! assert_eq!(allocator.stats().reserved_bytes.all.current, 20 << 20);
//! allocator.empty_cache()?;
//! assert_eq!(allocator.stats().reserved_bytes.all.current, 0);
//! # Ok::<(), coalesce_alloc::error::Error>(())
//! ```
// Only the border to CUDA needs any.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]
// No panic is reachable from outside.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

pub mod allocator;
pub mod bytes;
pub mod check;
pub mod driver;
pub mod error;
pub mod history;
pub mod lifetimes;
pub mod managed;
pub mod mempool;
pub mod placement;
pub mod policy;
pub mod pytorch;
pub mod settings;
pub mod snapshot;
pub mod stats;
pub mod traced;
pub mod verified;
