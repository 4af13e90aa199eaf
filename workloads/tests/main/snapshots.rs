//! Reading PyTorch's memory snapshots.

mod devices;
mod history;
mod mistakes;
mod saved;
mod wrapped;
