//! Recordings undone, replayed and turned into programs.

mod impossible;
mod invented;
mod snapshots;
