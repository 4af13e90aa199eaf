//! Patterns that leave memory free but in pieces, one a file and each a family.
//!
//! | family | pattern |
//! |---|---|
//! | [`Fragmentation`] | every k-th block freed, then larger ones wanted |
//! | [`Comb`] | gaps between blocks that stay, wanted again a little larger |
//! | [`Growth`] | buffers that grow by being copied, in steps or by doubling |
//! | [`Sawtooth`] | up to a peak and down, each time with blocks of another size |
//! | [`Phases`] | two phases of different sizes; which comes first matters |
//! | [`Survivors`] | a few blocks of many live on, and pin what they lie in |
//! | [`Churn`] | random sizes and lifetimes below a cap, as long as you like |
//! | [`Adversary`] | Robson's construction, which no allocator withstands |
//!
//! None of them is a real program: each is one cause, alone, so that its effect can be told.

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

/// The most allocations that a member may hold at a time: they are held here, too.
const MOST_LIVE: u64 = (1 << 24) - 1;

/// The most bytes of an allocation.
const MOST_BYTES: u64 = (1 << 60) - 1;
