//! Measures GPU allocators on recorded and synthetic workloads. `cargo bench` and the program `coalesce`
//! are built on it.
//!
//! - [`measure`]: one measurement: a workload, a policy and a device give one row of results.
//! - [`sweep`]: many measurements, described by a TOML file.
//! - [`timing`]: how long calls take, on the simulated device or on a GPU.
//! - [`report`]: tables, comparisons and plots of results.
//! - [`realism`]: compares generated workloads with the recorded ones that they imitate.
//! - [`convert`]: writes a workload in the formats of other tools.
//! - [`file_name`]: names of files that are made from names of workloads.
//! - [`text`]: amounts, durations and tables as people read them.
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod convert;
pub mod file_name;
pub mod measure;
pub mod realism;
pub mod report;
pub mod sweep;
pub mod text;
pub mod timing;
