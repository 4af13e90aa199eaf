//! The policies: what one is, and all there are.
//!
//! A new policy is one file, one line in the table below (with the `mod` that Rust asks for), and one
//! line in `tests/suite/properties.rs`. See [the worked example](#a-policy-in-one-file).
//!
//! # A policy in one file
//!
//! The simplest that caches: freed blocks are kept and given to requests of exactly their size.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use coalesce_alloc::Allocator;
//! use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
//! use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
//! use coalesce_alloc::Managed;
//! use coalesce_alloc::policy::settings::{PolicySettings, PolicySettingsError};
//! use coalesce_alloc::policy::{Block, Policy, Refusal};
//!
//! #[derive(Debug, Default)]
//! struct ExactFit {
//!     // Ordered, so that the cache is always emptied in the same order.
//!     free: BTreeMap<(StreamId, u64), Vec<DeviceAddr>>,
//! }
//!
//! impl ExactFit {
//!     fn from_settings(_: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
//!         Ok(Self::default()) // no settings
//!     }
//! }
//!
//! impl Policy for ExactFit {
//!     fn malloc(
//!         &mut self,
//!         device: &mut dyn Driver,
//!         bytes: u64,
//!         stream: StreamId,
//!     ) -> Result<Block, Refusal> {
//!         let bytes = bytes.next_multiple_of(512);
//!         let cached = self.free.entry((stream, bytes)).or_default().pop();
//!         let addr = match cached {
//!             Some(addr) => addr,
//!             None => device.malloc(bytes)?,
//!         };
//!         Ok(Block { addr, bytes, stream })
//!     }
//!
//!     fn free(&mut self, _: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
//!         self.free.entry((block.stream, block.bytes)).or_default().push(block.addr);
//!         Ok(())
//!     }
//!
//!     fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
//!         for (&(_, bytes), cached) in &mut self.free {
//!             while let Some(&addr) = cached.last() {
//!                 device.free(addr, bytes)?; // still ours if this fails
//!                 cached.pop();
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let device = SimDevice::new(&SimConfig::default());
//! let mut allocator = Managed::new("exact_fit", ExactFit::default(), device);
//! let first = allocator.malloc(1000, StreamId::DEFAULT)?;
//! allocator.free(first)?;
//! assert_eq!(allocator.malloc(1024, StreamId::DEFAULT)?, first);
//! assert_eq!(allocator.stats().reserved_bytes.all.peak, 2 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In the table it is `"exact_fit", "blocks of exactly the size asked for" => exact_fit::ExactFit;`,
//! and among the tests `allocator_suite!(exact_fit, "exact_fit", "", tight(Up));`. From then on it is
//! in every sweep that asks for it, in `coalesce policies`, and under the whole suite.

mod bfc;
mod bfc_two_ended;
mod buddy;
mod contract;
mod cubecl;
pub mod cuda_async;
mod cupy;
pub mod direct;
mod fence;
mod gmlake;
mod offline;
mod offset_allocator;
mod paddle_auto_growth;
mod pieces;
mod planned;
mod registry;
mod rmm;
mod rmm_arena;
mod rmm_binning;
mod rmm_pool;
pub mod settings;
mod stalloc;
pub mod stream_safe;
mod tlsf;

pub use self::contract::{Block, Policy, Refusal};
use self::contract::{malloc_or_retry, only_default};
pub use self::registry::{
    BuildError, OfflinePlan, POLICIES, PolicyInfo, build, check_conf, plan_offline,
};
