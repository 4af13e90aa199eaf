//! Reading PyTorch's memory snapshots.

mod devices;
mod fixtures;
mod history;
mod mistakes;
mod recorded;
mod values;
mod wrapped;
mod wrong_values;
