//! Families: generated workloads with parameters and a seed. [`catalog`](crate::catalog) lists them by name.
//!
//! - Models, composed of the same operators as their Python code: [`transformer`] (GPT-2, BERT, Llama; LoRA,
//!   checkpointing), [`moe`], [`cnn`] and [`inference`].
//! - Patterns: [`grad_accumulation`], [`fragmentation`] (and its variants), [`streams`], [`shared_gpu`],
//!   [`batch_probe`] and [`experiment`].
//! - Tools to write families with: [`program`] (ids and lifetimes), [`rng`] (reproducible random numbers),
//!   [`lengths`] (batch and sequence lengths) and [`byte_count`] (sizes with units).

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
