//! report.

pub mod compare;
pub mod gallery;
pub mod pareto;
pub mod plot;
pub mod readme;
pub mod summary;
pub mod table;
