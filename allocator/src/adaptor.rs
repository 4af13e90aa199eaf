//! Adaptors: allocators that wrap another one.

pub(crate) mod busy;
pub mod scheduled;
pub(crate) mod verified;
pub(crate) mod with_history;
