//! Memory snapshots of PyTorch, read.

mod recorded;
