//! One measurement, and what the other modules need for it.
//!
//! - [`cell`] replays a workload under a policy on a device of some [`capacity`] and with the costs of a [`profile`];
//!   [`least`] searches the minimum device memory, if that is [`plausible`]. [`record`] is the resulting row of a CSV.
//! - [`timeline`] collects memory over time, [`statistics`] evaluates repeated timings.
//! - [`parallel`] runs work on several threads, [`deadline`] limits its time, [`progress`] shows how far it is.
//! - [`results`] finds and writes files, [`toml_file`] parses TOML.

pub mod capacity;
pub mod cell;
pub mod deadline;
pub mod least;
pub mod parallel;
pub mod plausible;
pub mod profile;
pub mod progress;
pub mod record;
pub mod results;
pub mod statistics;
pub mod timeline;
pub mod toml_file;
