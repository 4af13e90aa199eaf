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

pub mod advise;
pub mod bench;
pub mod capacity;
pub mod cell;
pub mod compare;
pub mod deadline;
pub mod device;
pub mod diagnose;
pub mod formats;
pub mod gallery;
pub mod input;
pub mod least;
pub mod machine;
pub mod metered;
pub mod model;
pub mod on_gpu;
pub mod parallel;
pub mod pareto;
pub mod plot;
pub mod profile;
pub mod progress;
pub mod readme;
pub mod realism;
pub mod record;
pub mod results;
pub mod script_bench;
pub mod shapes;
pub mod statistics;
pub mod summary;
pub mod sweep;
pub mod table;
pub mod timeline;
pub mod timing;
pub mod toml_file;
pub mod walk;
