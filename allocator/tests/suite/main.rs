//! Everything tested through the public interface, in one binary so that it links once.
//!
//! `cargo test -p coalesce-alloc --test suite state_machine::` runs one module. The fuzz target stands
//! apart, because libFuzzer's instrumentation would slow down everything linked with it.

mod harness;

mod addresses;
mod bad_input;
mod golden;
mod in_parts;
mod names;
mod no_host_allocation;
mod originals;
mod pinned;
mod placement;
mod plans;
mod pool;
mod properties;
mod queries;
mod quilting;
mod reports;
mod restore;
mod settings;
mod soak;
mod state_machine;
mod streams;
mod transcripts;
