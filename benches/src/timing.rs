//! timing.

pub mod bench;
pub mod metered;
pub mod model;
pub mod on_gpu;
pub mod profile;
pub mod shapes;
pub mod throughput;
pub mod walk;
