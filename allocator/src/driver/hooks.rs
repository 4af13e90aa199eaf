//! Hooks for driver calls. See [`super::tap`].

pub mod clearing;
pub mod cost;
pub mod faults;
pub mod held;
mod instruments;
pub mod limit;
pub mod stopwatch;

pub use instruments::Instruments;
