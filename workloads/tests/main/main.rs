//! The tests of this package, one binary. The fuzz targets are separate: they count allocations of the
//! host, and `scripts/fuzz` instruments them.

#[path = "../../src/cases.rs"]
mod cases;
mod common;
mod elsewhere;

mod altered;
mod articles;
mod binary_traces;
mod budgets;
mod catalog;
mod compression;
mod digests;
mod expected;
mod families;
mod fragmentation;
mod gone_pools;
mod limits;
mod models;
mod own_peak;
mod parameter_ranges;
mod pickles;
mod placement;
mod profiles;
mod recordings;
mod round_trips;
mod sections;
mod snapshots;
mod surroundings;
mod trace_files;
