//! Runs a shared library that was made for PyTorch's `CUDAPluggableAllocator` as a policy.
//!
//! The library runs in a process of its own, over the CUDA functions of the crate `coalesce-simcuda`:
//!
//! ```text
//!  this process                                    the host process
//! ┌──────────────────────┐  malloc, free, …       ┌──────────────────────────┐
//! │ Managed              │ ─────────────────────► │ library                  │
//! │  └ Plugin (a Policy) │                        │  └ libcuda, libcudart:   │
//! │     └ SimDevice      │ ◄───────────────────── │     the simulated device │
//! └──────────────────────┘  address, driver calls └──────────────────────────┘
//! ```
//!
//! After each request the host reports the driver calls that the library made. They are repeated on the device
//! of this process, which is configured alike, so reserved memory, calls and modelled time are counted exactly as
//! for every other policy. A library that crashes or hangs ends its own process only.
//!
//! - [`Library`] is what a user names: `plugin:PATH`. [`build`] makes an allocator of it.
//! - The host process is the running program itself: its `main` calls [`serve_if_asked`] first.
//! - Streams reach the library, and `record_stream` and `empty_cache` if it has functions for them. Events complete
//!   at once. A workload that holds them back or changes other processes' memory is refused when a driver call has
//!   another result for that reason; what `cudaMemGetInfo` says of other processes is what held at the start.
//!
//! Linux only. Elsewhere [`build`] fails.
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod error;
mod library;

#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod mirror;
#[cfg(target_os = "linux")]
mod policy;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod simcuda;
#[cfg(target_os = "linux")]
mod wire;

pub use self::error::PluginError;
pub use self::library::{Library, PREFIX, check_conf};

use coalesce_alloc::{Allocator, SimConfig, SimDevice};

/// The name of the policy in error messages.
#[cfg(target_os = "linux")]
const NAME: &str = "plugin";

/// The first argument of a host process.
#[cfg(target_os = "linux")]
const HOST_ARGUMENT: &str = "--coalesce-plugin-host";

/// Starts the library over a new simulated device. `conf` are environment variables for it, `NAME=VALUE`, separated
/// by blanks.
///
/// # Errors
/// If the library or the simulated CUDA is not found, the library cannot be loaded or lacks the functions, `conf` is
/// invalid, or the system is not Linux.
pub fn build(
    library: &Library,
    config: &SimConfig,
    conf: &str,
) -> Result<Box<dyn Allocator<Driver = SimDevice>>, PluginError> {
    #[cfg(target_os = "linux")]
    {
        let plugin = policy::Plugin::start(library, config, conf)?;
        let device = SimDevice::new(config);
        Ok(Box::new(coalesce_alloc::Managed::new(NAME, plugin, device)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (config, library::variables(conf)?);
        Err(PluginError::NotLinux {
            library: library.path().to_owned(),
        })
    }
}

/// If this process was started as a host, serves requests until the parent ends, and returns the exit status.
/// In every other process, returns `None` at once.
#[must_use]
pub fn serve_if_asked() -> Option<std::process::ExitCode> {
    #[cfg(target_os = "linux")]
    {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next()? == HOST_ARGUMENT {
            return Some(host::serve(arguments));
        }
    }
    None
}
