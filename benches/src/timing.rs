//! How long calls take: of allocators, and of the driver.
//!
//! - [`shapes`] and [`walk`]: workloads prepared for replay at full speed. [`throughput`] times them on the simulated
//!   device for sweeps, [`fastest`] compares them with a [`yardstick`] for `cargo bench`, and `bench` measures every policy on a device, with latencies.
//! - [`on_gpu`] measures a cell on a device with [`metered`] driver calls; [`model`] compares those times with a cost
//!   profile; [`profile`] measures such a profile, and [`scale`] fits it to programs.
//! - `device` is the device that the user names, `machine` describes the machine.

#[cfg(feature = "cuda")]
pub mod bench;
#[cfg(feature = "cuda")]
pub mod device;
pub mod fastest;
#[cfg(feature = "cuda")]
pub mod machine;
pub mod metered;
pub mod model;
pub mod on_gpu;
#[cfg(test)]
mod pooled;
pub mod profile;
pub mod scale;
pub mod shapes;
pub mod throughput;
pub mod walk;
pub mod yardstick;
