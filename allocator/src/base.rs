//! What every module may use, and what uses none of them.

pub mod bytes;
pub(crate) mod check;
pub(crate) mod gaps;
#[macro_use]
mod named;
pub mod printable;
pub(crate) mod shared;
pub(crate) mod stat;
