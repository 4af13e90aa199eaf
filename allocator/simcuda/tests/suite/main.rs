//! CUDA's interfaces over the simulated device, and the CUDA device over them, in one binary so that
//! it links once.
#![allow(unsafe_code, reason = "the simulated driver is called in C")]

mod library;
mod machine;
#[allow(dead_code, reason = "failures are injected by variables here")]
#[path = "../../../tests/suite/harness/ops.rs"]
mod ops;
#[path = "../../../tests/suite/harness/recorded.rs"]
mod recorded;

mod cuda_device;
mod cuda_device_allocators;
mod cuda_device_failures;
mod functions;
mod transcripts;
mod verified;
