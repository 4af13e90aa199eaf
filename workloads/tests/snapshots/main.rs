//! Memory snapshots of PyTorch, read.

#[path = "../elsewhere/mod.rs"]
mod elsewhere;
mod fixtures;
mod history;
mod mistakes;
mod recorded;
