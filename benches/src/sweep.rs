//! Workloads × policies × settings × capacities × seeds, as one file describes them.
//!
//! - [`spec`] is the file, [`entry`] its workloads, [`plan`] the cells that it means, in order.
//! - [`run`] runs cells on all cores; [`journal`] keeps what is done, so that a sweep that was killed
//!   goes on where it was.
//! - [`merge`] joins the shares of a sweep that was run in parts.

pub mod entry;
pub mod journal;
pub mod merge;
pub mod plan;
pub mod run;
pub mod spec;
