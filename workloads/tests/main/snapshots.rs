//! Reading PyTorch's memory snapshots.

mod devices;
mod history;
mod mistakes;
mod recorded;
mod saved;
mod wrapped;
