//! Recordings, reversed to their initial state, replayed and converted to programs.

mod impossible;
mod invented;
mod pools;
mod programs;
mod random;
mod snapshots;
mod warm;
