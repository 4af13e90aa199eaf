//! What programs ask of a GPU allocator.
//!
//! A [`Workload`] is a stream of [`Op`]s: a recorded trace, or a family with parameters and a seed.
//! It need not be held in memory as a whole. [`replay`](mod@replay) puts it through any allocator.
//!
//! - [`op`] is one operation, and the contract of workloads; [`surroundings`] is what happens around
//!   the program.
//! - [`trace`] reads recordings of ours and logs of RMM, [`recording`] memory snapshots of PyTorch, which
//!   are [`pickle`]s, and [`minimalloc`] instances of offline placement, all of them [`packed`] or not.
//! - [`rng`] and [`program`] are what families are written with.
//! - [`transformer`], [`moe`], [`cnn`] and [`inference`] are families of models, composed of operators
//!   as their Python code is; [`lengths`] says how long their batches are, and [`realism`] pairs them
//!   with recordings. [`grad_accumulation`], [`fragmentation`], [`streams`], [`shared_gpu`],
//!   [`batch_probe`] and [`experiment`] are families of patterns.
//! - [`catalog`] has all families by name, and [`presets`] has ready-made members.
//! - [`replay`](mod@replay) drives an allocator, with observers; [`measure`] says what the results
//!   mean, and [`demand`] what no allocator can do without. [`lifetimes`] tells offline policies about a
//!   workload in advance. [`cached`] holds one in memory, to be replayed many times;
//!   [`perturbed`](mod@perturbed) is another run of the same program.
//!
//! A family gives the same operations for the same parameters and seed on every platform; a digest
//! of each is tested.
#![forbid(unsafe_code)]
// No panic is reachable from outside.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]

pub mod cached;
pub mod catalog;
pub mod demand;
pub mod families;
pub mod formats;
pub mod lifetimes;
pub mod measure;
pub mod op;
mod ops;
pub mod perturbed;
pub mod presets;
pub mod realism;
pub mod replay;
pub mod surroundings;

pub use op::{Op, Workload, WorkloadError};
