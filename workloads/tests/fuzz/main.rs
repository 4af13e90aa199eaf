//! Whatever stands in a file, reading it ends soon: with what it says, or with what is wrong with it.
//!
//! Each target takes bytes. Here it takes the examples, random changes of them and what made it fail
//! before; `scripts/fuzz` lets libFuzzer look for more. A panic is a failure, and so is more memory than
//! the file can be worth.

mod examples;
mod file;
mod memory;
mod minimalloc;
mod rmm;
mod snapshot;
mod trace;
