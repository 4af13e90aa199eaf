//! Measures GPU allocators: what `cargo bench` and the program `coalesce` are made of.

pub mod script_bench;
