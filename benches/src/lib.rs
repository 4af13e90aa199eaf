//! Measures GPU allocators: what `cargo bench` and the program `coalesce` are made of.
//!
//! - [`sweep`] is what is compared, as a file describes it; [`cell`] is the run of one part of it, on a
//!   device of some [`capacity`] with some cost [`profile`]; [`least`] finds the smallest that will do.
//! - [`record`] is what came of it, one row of a CSV; [`table`], [`plot`] and [`readme`] show rows,
//!   [`compare`] tells two tables apart, [`summary`] holds settings against a baseline, [`pareto`]
//!   policies against each other.
//! - [`advise`](mod@advise) searches the settings that fit a program; [`input`] reads what a person
//!   names, and [`formats`] writes it for other tools.
//! - [`diagnose`] says what is wrong with how a program uses its memory.
//! - [`gallery`] says which plots there are; [`timeline`] is memory over time.
//! - [`walk`] replays a prepared workload as fast as it goes, for [`timing`], with [`statistics`];
//!   [`script_bench`] times a conformance script as the oracle does.
//! - [`realism`] holds generated programs against recorded ones.
//! - [`parallel`] does work on all cores, [`deadline`] ends it, [`progress`] shows how far it is,
//!   [`results`] where it is written to, [`toml_file`] reads what it is told.

pub mod convert;
pub mod measure;
pub mod realism;
pub mod report;
pub mod sweep;
pub mod timing;
