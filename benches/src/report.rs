//! Tables, comparisons and plots of results.
//!
//! - [`table`] prints results as text, [`readme`] puts tables into Markdown files, [`figures`] figures into their prose.
//! - [`compare`] finds the differences between two tables, [`summary`] the effect of settings compared with a
//!   baseline, [`pareto`] the trade-off between memory and driver time across policies, [`releases`] what changed from
//!   release to release of PyTorch, [`waste`] how much memory each policy wastes, [`ranking`] who needs how much and how
//!   fast.
//! - [`spreadsheet`] writes results as a spreadsheet.
//! - [`gallery`] chooses the plots of a sweep, [`plot`] draws them.

pub mod compare;
#[cfg(test)]
mod edges;
pub mod figures;
pub mod gallery;
pub mod pareto;
pub mod plot;
pub mod ranking;
pub mod readme;
#[cfg(test)]
mod recorded;
pub mod releases;
pub mod spreadsheet;
pub mod summary;
pub mod table;
pub mod waste;
