//! Memory snapshots of PyTorch, read.

mod fixtures;
mod mistakes;
mod recorded;
