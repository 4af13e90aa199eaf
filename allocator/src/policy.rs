//! The policies: what one is, and all there are.
//!
//! A new policy is one file, one line in the table below (with the `mod` that Rust asks for), and one
//! line in `tests/properties.rs`. See [the worked example](#a-policy-in-one-file).
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
//! use coalesce_alloc::policy::knobs::{KnobError, Knobs};
//! use coalesce_alloc::policy::{Block, Policy, Refusal};
//!
//! #[derive(Debug, Default)]
//! struct ExactFit {
//!     // Ordered, so that the cache is always emptied in the same order.
//!     free: BTreeMap<(StreamId, u64), Vec<DeviceAddr>>,
//! }
//!
//! impl ExactFit {
//!     fn from_conf(conf: &str) -> Result<Self, KnobError> {
//!         Knobs::parse(conf)?.finish()?;
//!         Ok(Self::default())
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
//!         for cached in self.free.values_mut() {
//!             while let Some(&addr) = cached.last() {
//!                 device.free(addr)?; // still ours if this fails
//!                 cached.pop();
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let device = SimDevice::new(&SimConfig::default());
//! let mut allocator = Managed::new("exact_fit", ExactFit::from_conf("")?, device);
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
mod cubecl;
pub mod cuda_async;
mod cupy;
pub mod direct;
mod fence;
mod gmlake;
pub mod knobs;
mod offline;
mod offset_allocator;
mod paddle_auto_growth;
mod pieces;
mod planned;
mod rmm;
mod rmm_arena;
mod rmm_binning;
mod rmm_pool;
mod stalloc;
pub mod stream_safe;
mod tlsf;

use std::sync::Arc;

use crate::allocator::Allocator;
use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};
use crate::foresight::Foresight;
use crate::managed::Managed;
use crate::settings::{Settings, SettingsError};

use self::knobs::KnobError;
use self::planned::{Plan, Planned};
use self::stream_safe::StreamSafe;
use crate::pytorch::PyTorch;

/// Memory that a policy handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it starts: a multiple of 256.
    pub addr: DeviceAddr,
    /// All its bytes, at least those asked for.
    pub bytes: u64,
    /// The stream it was asked for on.
    pub stream: StreamId,
}

/// What a policy decides: which memory a request gets, and what becomes of it afterwards.
///
/// [`Managed`] makes an [`Allocator`] of it, with all that is the same for every policy: it owns the
/// device, knows the live blocks and the memory held, counts, and refuses what makes no sense.
///
/// A call that fails has changed nothing that a later call could see, but that memory may have been
/// taken from the device and be kept.
pub trait Policy: Send {
    /// Memory of at least `bytes`, more than 0 and less than 2^60, for work on `stream`.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if there is none; what the original does not serve is
    /// [`Refusal::Unsupported`].
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal>;

    /// Takes back a block that it handed out, in the order of the work on the block's stream.
    ///
    /// # Errors
    /// What the device reports. The block is then offered again when the cache is emptied.
    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal>;

    /// Says that `stream`, too, works on a block: once freed, it stays out of use until that stream
    /// has done all the work it has then.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] if the policy has no such thing.
    fn record_stream(
        &mut self,
        _device: &mut dyn Driver,
        _block: Block,
        _stream: StreamId,
    ) -> Result<(), Refusal> {
        Err(Refusal::Unsupported("memory used on other streams"))
    }

    /// Returns to the device all memory that can be returned: all of it once every block is free and
    /// every stream is done, what was taken in advance included.
    ///
    /// # Errors
    /// What the device reports. What was not returned is kept.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal>;

    /// Verifies its own state, at a cost that grows with it.
    ///
    /// # Errors
    /// The first invariant found broken.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// Why a policy did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no memory for it.
    OutOfMemory,
    /// The policy does not serve this at all; what it does not serve, as in "does not serve …".
    Unsupported(&'static str),
    /// The device failed, other than for lack of memory.
    Driver(DriverError),
}

/// So that lack of memory on the device is lack of memory.
impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::OutOfMemory => Self::OutOfMemory,
            error => Self::Driver(error),
        }
    }
}

/// Memory from the device; if there is none, once more after `make_room` has given some back.
fn malloc_or_retry(
    device: &mut dyn Driver,
    bytes: u64,
    make_room: impl FnOnce(&mut dyn Driver) -> Result<(), Refusal>,
) -> Result<DeviceAddr, Refusal> {
    match device.malloc(bytes) {
        Err(DriverError::OutOfMemory) => {
            make_room(device)?;
            Ok(device.malloc(bytes)?)
        }
        answer => Ok(answer?),
    }
}

/// The work of a policy that knows of one stream only: fails for any other.
fn only_default(stream: StreamId) -> Result<(), Refusal> {
    match stream {
        StreamId::DEFAULT => Ok(()),
        _ => Err(Refusal::Unsupported("work on more than one stream")),
    }
}

/// A policy that can be made by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// What it is called on the command line and in results.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Whether it has to know the program in advance: [`prepare`] comes before.
    pub foreseeing: bool,
}

macro_rules! policies {
    (
        $($name:literal, $summary:literal => $policy:ty;)+
        foreseeing:
        $($planner:literal, $plan_summary:literal => $plan:path;)+
    ) => {
        /// All policies, the reference first.
        pub const POLICIES: &[Registered] = &[
            Registered {
                name: "pytorch",
                summary: "the caching allocator of PyTorch 2.11 (native backend), with all its settings",
                foreseeing: false,
            },
            $(Registered { name: $name, summary: $summary, foreseeing: false },)+
            $(Registered { name: $planner, summary: $plan_summary, foreseeing: true },)+
        ];

        /// Makes an allocator of the policy called `name`, with its settings.
        ///
        /// # Errors
        /// If there is none of that name, the settings are wrong, or it has to know the program in
        /// advance.
        pub fn build<D: Driver + 'static>(
            name: &str,
            driver: D,
            conf: &str,
        ) -> Result<Box<dyn Allocator<Driver = D>>, BuildError> {
            match name {
                "pytorch" => {
                    let settings = settings(conf)?;
                    Ok(Box::new(PyTorch::new(driver, settings)))
                }
                $($name => {
                    let policy = <$policy>::from_conf(conf).map_err(knobs_of($name))?;
                    Ok(Box::new(Managed::new($name, policy, driver)))
                })+
                $($planner => Err(BuildError::Blind { policy: $planner }),)+
                _ => Err(BuildError::UnknownPolicy { name: name.to_owned() }),
            }
        }

        /// What the policy called `name` plans for a program, if it is one that plans ahead. This is
        /// where all its work is; [`Prepared::build`] is quick.
        ///
        /// # Errors
        /// If the settings are wrong.
        pub fn prepare(
            name: &str,
            conf: &str,
            foresight: &Foresight,
        ) -> Result<Option<Prepared>, BuildError> {
            let (policy, plan) = match name {
                $($planner => ($planner, $plan(conf, foresight).map_err(knobs_of($planner))?),)+
                _ => return Ok(None),
            };
            Ok(Some(Prepared { policy, plan: Arc::new(plan) }))
        }

        /// Whether the policy called `name` takes these settings.
        ///
        /// # Errors
        /// As [`build`].
        pub fn check_conf(name: &str, conf: &str) -> Result<(), BuildError> {
            match name {
                "pytorch" => settings(conf).map(|_| ()),
                $($name => <$policy>::from_conf(conf).map(|_| ()).map_err(knobs_of($name)),)+
                $($planner => prepare(name, conf, &Foresight::default()).map(|_| ()),)+
                _ => Err(BuildError::UnknownPolicy { name: name.to_owned() }),
            }
        }
    };
}

policies! {
    "direct", "every malloc and free goes to the device: no caching" => direct::Direct;
    "cuda_async", "the driver's stream-ordered pool (cudaMallocAsync), or a model of it where there is none" => cuda_async::CudaAsync;
    "bfc", "best fit with coalescing: the allocator of TensorFlow, XLA and JAX" => bfc::Bfc;
    "bfc_two_ended", "bfc from both ends of one arena, as JAX has it since 2026" => bfc_two_ended::BfcTwoEnded;
    "rmm_pool", "RMM's pool: best fit in large pieces, a free list for each stream" => rmm_pool::RmmPool;
    "rmm_arena", "RMM's arena: one region, first fit, superblocks lent to streams" => rmm_arena::RmmArena;
    "rmm_binning", "RMM's bins of 256 KiB to 4 MiB over its pool" => rmm_binning::RmmBinning;
    "buddy", "the binary buddy system: powers of two, halved and joined" => buddy::Buddy;
    "tlsf", "two-level segregated fit in blocks, as in the Vulkan Memory Allocator" => tlsf::Tlsf;
    "cubecl_sliced", "CubeCL 0.10: slices of pages of several sizes, first fit" => cubecl::Sliced;
    "cubecl_exclusive", "CubeCL 0.10: a page for each request, in buckets of sizes" => cubecl::Exclusive;
    "cupy", "the memory pool of CuPy 14: best fit, always cut to size" => cupy::Cupy;
    "paddle_auto_growth", "the default of PaddlePaddle 3: best fit, cut from the high end" => StreamSafe<paddle_auto_growth::AutoGrowth>;
    "offset_allocator", "the crate offset-allocator (256 bins) over blocks of the device" => offset_allocator::OffsetAllocator;
    "gmlake", "GMLake: free memory in pieces, stitched to blocks by mapping it twice" => gmlake::GmLake;
    foreseeing:
    "offline", "every request placed before the first, by the best of several packers" => offline::plan;
    "stalloc", "STAlloc's plan of two iterations, done over and over" => stalloc::plan;
}

/// What a policy that plans ahead made of a program: any number of allocators.
#[derive(Clone, Debug)]
pub struct Prepared {
    policy: &'static str,
    plan: Arc<Plan>,
}

impl Prepared {
    /// An allocator that carries the plan out.
    #[must_use]
    pub fn build<D: Driver + 'static>(&self, driver: D) -> Box<dyn Allocator<Driver = D>> {
        let policy = Planned::new(Arc::clone(&self.plan));
        Box::new(Managed::new(self.policy, policy, driver))
    }
}

fn settings(conf: &str) -> Result<Settings, BuildError> {
    Settings::from_conf(conf).map_err(|source| BuildError::PyTorch {
        conf: conf.to_owned(),
        source,
    })
}

fn knobs_of(policy: &'static str) -> impl Fn(KnobError) -> BuildError {
    move |source| BuildError::Knobs { policy, source }
}

/// Why an allocator could not be made.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no policy of that name.
    #[error("unknown policy '{name}': there is {}", names())]
    UnknownPolicy {
        /// The name asked for.
        name: String,
    },
    /// It plans ahead, and the program is not known: see [`prepare`].
    #[error("{policy} has to know the program in advance")]
    Blind {
        /// The policy.
        policy: &'static str,
    },
    /// PyTorch does not take this string.
    #[error("PYTORCH_CUDA_ALLOC_CONF '{conf}'")]
    PyTorch {
        /// The string.
        conf: String,
        /// Why not.
        source: SettingsError,
    },
    /// Another policy does not take its settings.
    #[error("settings of {policy}")]
    Knobs {
        /// The policy.
        policy: &'static str,
        /// Why not.
        source: KnobError,
    },
}

fn names() -> String {
    let names: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
    names.join(", ")
}
