//! Devices, and the last error.

use std::ffi::{CStr, c_char};

use super::properties::DeviceProperties;
use crate::border::{Out, entry_points};
use crate::context;
use crate::errors::Code;

entry_points! { runtime_early:
    fn cudaGetDeviceCount(count: Out<i32>) |sim| {
        count.set(sim.settings.device_count.cast_signed())?;
        sim.initialize()
    }

    fn cudaDriverGetVersion(version: Out<i32>) |sim| { version.set(sim.settings.driver_version) }

    /// Always 13.0; the driver may have another version.
    fn cudaRuntimeGetVersion(version: Out<i32>) |_| { version.set(13000) }
}

entry_points! { runtime:
    fn cudaGetDevice(device: Out<i32>) |_| {
        device.set(context::current().unwrap_or(0).cast_signed())
    }

    fn cudaSetDevice(device: i32) |sim| {
        context::set_current(Some(sim.ordinal(device)?));
        sim.runtime_device().map(drop)
    }

    fn cudaGetDeviceProperties(properties: Out<DeviceProperties>, device: i32) |sim| {
        properties.fill(|| Ok(DeviceProperties::of(&sim.settings, sim.ordinal(device)?)))
    }

    fn cudaDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |sim| {
        can.fill(|| sim.can_access_peer(device, peer))
    }

    fn cudaDeviceEnablePeerAccess(_peer: i32, _flags: u32) |_| { Ok(()) }
}

/// The name of an unknown code.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

/// Returns the last failure of this thread and clears it.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    let last = context::last_error();
    context::set_last_error(Code::SUCCESS);
    last.0
}

/// Returns the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    context::last_error().0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    Code(code).text().unwrap_or(UNRECOGNIZED).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    Code(code).runtime_name().unwrap_or(UNRECOGNIZED).as_ptr()
}
