//! Workloads for GPU allocators, and their replay.
//!
//! A [`Workload`] is a sequence of [`Op`]s: allocations and frees with their streams, sizes and phases. It
//! comes from a file ([`formats`]: traces, RMM logs, MiniMalloc instances, PyTorch memory snapshots) or
//! from a generator with parameters and a seed ([`families`]). [`replay()`] runs it on any allocator.
//!
//! ```
//! use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
//! use coalesce_alloc::PyTorch;
//! use coalesce_alloc::settings::Settings;
//! use coalesce_workloads::{Input, Measures, replay};
//!
//! let input = Input::open(&"churn".into(), None)?; // a file, a preset or a family
//! let device = SimDevice::new(&SimConfig::with_capacity(80 << 30));
//! let mut allocator = PyTorch::new(device, Settings::default());
//! replay(&*input.workload, &mut allocator, &mut ())?;
//! println!("{:?}", Measures::of(allocator.stats()).efficiency());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`op`]: the operations and the contract of workloads; [`surroundings`]: changes outside the program;
//!   [`written`]: workloads that a caller writes itself.
//! - [`input`]: opens a file, a preset or a family by name. [`catalog`]: the families and their
//!   parameters; [`presets`]: ready-made workloads.
//! - [`replay`](mod@replay): drives an allocator, with observers. [`start`]: the memory that is reserved
//!   when a recording begins. [`limited`]: a limit on its memory from outside. [`measure`]: the results;
//!   [`late`]: the driver calls of a steady program; [`demand`]: the minimum that any allocator needs.
//! - [`cached`]: a workload in memory, to replay many times; [`perturbed`](mod@perturbed): another run of
//!   the same program; [`lifetimes`]: the lifetimes of its requests, for offline policies.
//! - [`budget`]: how much of an input may be kept in memory; [`keeping`]: a workload that is kept.
//! - [`json`]: JSON that can be printed, whatever text is in it.
//! - [`conditions`]: those under which a program was recorded. [`clock`]: the time, also in a browser. [`realism`]: recordings and the family members that model them.
//!
//! A family sends the same operations for the same parameters and seed on every platform; tests compare a
//! digest of each preset.
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![forbid(unsafe_code)]
// No panic is reachable from outside.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

pub mod budget;
pub mod cached;
// For the tests of this and other crates. A difference ends a test.
#[doc(hidden)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
pub mod cases;
pub mod catalog;
pub mod clock;
pub mod conditions;
mod course;
pub mod created_first;
pub mod demand;
pub mod families;
pub mod formats;
pub mod input;
pub mod json;
pub mod keeping;
pub mod late;
pub mod lifetimes;
pub mod limited;
mod live;
pub mod measure;
pub mod never_busy;
pub mod op;
mod ops;
pub mod perturbed;
pub mod presets;
pub mod realism;
pub mod recorded;
pub mod replay;
pub mod start;
pub mod surroundings;
pub mod written;

pub use input::Input;
pub use measure::Measures;
pub use op::{Answer, Op, Sink, Workload, WorkloadError};
pub use replay::{Observer, Outcome, Step, Tally, replay};
