//! measure.

pub mod capacity;
pub mod cell;
pub mod deadline;
pub mod least;
pub mod parallel;
pub mod profile;
pub mod progress;
pub mod record;
pub mod results;
pub mod statistics;
pub mod timeline;
pub mod toml_file;
