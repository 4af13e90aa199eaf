//! Memory snapshots of PyTorch, read.

mod fixtures;
mod history;
mod mistakes;
mod recorded;
