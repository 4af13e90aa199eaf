//! Measures GPU allocators: what `cargo bench` and the program `coalesce` are made of.
//!
//! - [`matrix`] is what is compared, workloads × settings; [`cell`] is the run of one of them.
//! - [`record`] is its result, one row of a CSV; [`table`], [`plot`] and [`readme`] show rows.
//! - [`timeline`] is memory over time.
//! - [`walk`] replays a prepared workload as fast as it goes; [`script_bench`] times a conformance
//!   script as the oracle does.
//! - [`progress`] shows how far long work is, [`results`] where it is written to.

pub mod cell;
pub mod matrix;
pub mod plot;
pub mod progress;
pub mod readme;
pub mod record;
pub mod results;
pub mod script_bench;
pub mod table;
pub mod timeline;
pub mod walk;
