//! The verbs of the program, one a file.

pub mod advise;
pub mod bench;
pub mod compare;
pub mod convert;
pub mod diagnose;
pub mod merge;
pub mod model;
pub mod place;
pub mod plot;
pub mod policies;
pub mod profile;
pub mod realism;
pub mod replay;
pub mod report;
pub mod script;
pub mod summary;
pub mod sweep;
pub mod verify;
pub mod workloads;
