//! timing.

#[cfg(feature = "cuda")]
pub mod bench;
#[cfg(feature = "cuda")]
pub mod device;
#[cfg(feature = "cuda")]
pub mod machine;
pub mod metered;
pub mod model;
pub mod on_gpu;
pub mod profile;
pub mod shapes;
pub mod throughput;
pub mod walk;
