//! Families.

pub mod batch_probe;
pub mod byte_count;
pub mod cnn;
pub(crate) mod eager;
pub mod experiment;
pub mod fragmentation;
pub mod grad_accumulation;
pub mod inference;
pub mod lengths;
pub mod moe;
pub(crate) mod parameters;
pub mod program;
pub mod rng;
pub mod shared_gpu;
pub mod streams;
pub mod transformer;
