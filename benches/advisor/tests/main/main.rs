//! What is said of recordings of real programs.
#![allow(missing_docs)]

mod answers;
#[path = "../../../../workloads/tests/main/elsewhere.rs"]
mod elsewhere;
mod holders;
mod recordings;
mod truncated;
