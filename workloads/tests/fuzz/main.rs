//! Reading a file ends soon, with its contents or an error, whatever bytes it has.
//!
//! Each target takes bytes. Under `cargo test` these are the examples, random changes of them and the
//! inputs of earlier failures; `scripts/fuzz` searches for more with libFuzzer. A target fails if it
//! panics or allocates too much memory for the size of the file.

mod binary;
mod examples;
mod file;
mod memory;
mod minimalloc;
mod profile;
mod rmm;
mod snapshot;
mod trace;
