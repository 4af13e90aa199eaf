//! Advises.

pub mod advise;
pub mod diagnose;
