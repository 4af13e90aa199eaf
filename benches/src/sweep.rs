//! Sweeps: workloads × policies × settings × capacities × seeds, described by a TOML file.
//!
//! - [`spec`] is the file format, [`entry`] the workloads, [`plan`] the ordered list of cells.
//! - [`run`] runs cells on all cores; [`journal`] records completed cells, so that an interrupted sweep resumes where
//!   it stopped.
//! - [`merge`] joins the parts of a sweep.

pub mod entry;
pub mod journal;
pub mod merge;
pub mod plan;
mod policies;
pub mod run;
pub mod spec;

/// A digest of the sources that decide results: programs with the same digest give the same results for the same
/// sweep.
pub const SOURCES: &str = env!("COALESCE_SOURCES");
