//! Policies: allocation strategies that [`Managed`](crate::Managed) turns into allocators.
//!
//! [`Policy`] is what a strategy implements. The [registry](crate::registry) lists all policies, and the reference,
//! [`PyTorch`](crate::PyTorch), which is not a `Policy`.
//!
//! # Example
//!
//! The simplest caching policy keeps freed blocks and reuses them for requests of exactly their size:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
//! use coalesce_alloc::policy::settings::{PolicySettings, PolicySettingsError};
//! use coalesce_alloc::policy::{Block, Policy, Served};
//!
//! /// Reuses blocks of exactly the requested size, rounded up to 512 bytes.
//! #[derive(Debug, Default)]
//! pub struct ExactFit {
//!     // Ordered, so that the cache is always emptied in the same order.
//!     free: BTreeMap<(StreamId, u64), Vec<DeviceAddr>>,
//! }
//!
//! impl ExactFit {
//!     /// Has no settings.
//!     pub fn from_settings(_: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
//!         Ok(Self::default())
//!     }
//! }
//!
//! impl Policy for ExactFit {
//!     fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
//!         let bytes = bytes.next_multiple_of(512);
//!         let cached = self.free.entry((stream, bytes)).or_default().pop();
//!         let addr = match cached {
//!             Some(addr) => addr,
//!             None => device.malloc(bytes)?,
//!         };
//!         Ok(Block::new(addr, bytes, stream))
//!     }
//!
//!     fn free(&mut self, _: &mut dyn Driver, block: Block) -> Served {
//!         self.free.entry((block.stream, block.bytes)).or_default().push(block.addr);
//!         Ok(())
//!     }
//!
//!     fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
//!         for (&(_, bytes), cached) in &mut self.free {
//!             while let Some(&addr) = cached.last() {
//!                 device.free(addr, bytes)?; // if this fails, the policy still owns the block
//!                 cached.pop();
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // Try it:
//! use coalesce_alloc::{Allocator, Managed, SimConfig, SimDevice};
//!
//! let device = SimDevice::new(&SimConfig::default());
//! let mut allocator = Managed::new("exact_fit", ExactFit::default(), device);
//! let first = allocator.malloc(1000, StreamId::DEFAULT)?;
//! allocator.free(first)?;
//! assert_eq!(allocator.malloc(1024, StreamId::DEFAULT)?, first);
//! assert_eq!(allocator.stats().reserved_bytes.all().peak, 2 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Adding a policy
//!
//! A policy takes one file and three lines:
//!
//! 1. Write `policy/exact_fit.rs`: the example without its last part, with `crate` for `coalesce_alloc`.
//! 2. Declare the module in `policy.rs`: `pub(crate) mod exact_fit;`
//! 3. Add it to the table in `registry.rs`:
//!    `"exact_fit", "reuses blocks of their exact size" => exact_fit::ExactFit;`
//! 4. Add it to the subjects of the test suite in `tests/suite/properties.rs`:
//!    `exact_fit: "exact_fit", "", tight(Up);`
//!
//! `coalesce policies` then lists it, replays and sweeps accept its name, and
//! `cargo test -p coalesce-alloc --test suite properties::exact_fit` runs the whole suite on it. An
//! [offline policy](crate::lifetimes) is a function that plans instead of a type: see `policy/offline.rs`.
//! Settings are described in [`settings`].

pub(crate) mod bfc;
pub(crate) mod bfc_two_ended;
pub(crate) mod buddy;
mod chunks;
mod contract;
pub(crate) mod cubecl;
pub mod cuda_async;
pub(crate) mod cupy;
pub mod direct;
mod fence;
mod free_runs;
pub(crate) mod gmlake;
pub(crate) mod offline;
pub(crate) mod offset_allocator;
pub(crate) mod paddle_auto_growth;
mod pieces;
pub(crate) mod planned;
pub(crate) mod quilt;
mod rmm;
pub(crate) mod rmm_arena;
pub(crate) mod rmm_binning;
pub(crate) mod rmm_pool;
pub mod settings;
pub(crate) mod stalloc;
pub mod stream_safe;
pub(crate) mod tlsf;
mod undo;
pub(crate) mod vpmm;

pub use self::contract::{Block, Policy, PrivatePools, Refusal, Served};
use self::contract::{malloc_or_retry, memory_of, only_default};
