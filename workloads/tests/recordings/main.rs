//! Recordings undone, replayed and turned into programs.

#[path = "../elsewhere/mod.rs"]
mod elsewhere;
mod impossible;
mod invented;
mod snapshots;
