//! Reading PyTorch's memory snapshots.

mod fixtures;
mod history;
mod mistakes;
mod recorded;
mod wrapped;
