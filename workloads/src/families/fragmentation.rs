//! Patterns that fragment memory, each a family in its own file.
//!
//! | family | pattern |
//! |---|---|
//! | [`Fragmentation`] | frees every k-th block, then requests larger ones |
//! | [`Comb`] | gaps between long-lived blocks, requested again slightly larger |
//! | [`Growth`] | buffers that grow by copying, in steps or by doubling |
//! | [`Sawtooth`] | fills to a peak and empties, each time with another block size |
//! | [`Phases`] | two phases of different block sizes, in either order |
//! | [`Survivors`] | a few blocks outlive the rest and pin their segments |
//! | [`Churn`] | random sizes and lifetimes below a cap, for any number of events |
//! | [`Adversary`] | Robson's construction, the worst case for every allocator |
//!
//! None is a real program: each isolates one cause so that its effect can be measured.

mod adversary;
mod churn;
mod comb;
mod growth;
mod interleaved;
mod phases;
mod sawtooth;
mod survivors;

pub use self::adversary::Adversary;
pub use self::churn::Churn;
pub use self::comb::Comb;
pub use self::growth::Growth;
pub use self::interleaved::Fragmentation;
pub use self::phases::{Order, Phases};
pub use self::sawtooth::Sawtooth;
pub use self::survivors::Survivors;
