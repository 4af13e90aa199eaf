//! Formats.

pub mod minimalloc;
pub mod packed;
pub mod pickle;
pub mod recording;
pub mod trace;
