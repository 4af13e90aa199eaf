//! Functions for memory and pools that do not behave as those of the driver's API.

use crate::border::{Out, entry_points};
use crate::context;

/// `cudaMemoryTypeUnregistered`, `cudaMemoryTypeHost`, `cudaMemoryTypeDevice`.
const UNREGISTERED: i32 = 0;
const PINNED: i32 = 1;
const ON_DEVICE: i32 = 2;

/// The device of memory that is on no device (`cudaInvalidDeviceId`).
const NO_DEVICE: i32 = -2;

/// `cudaPointerAttributes`, without the reserved fields at its end, which only CUDA 13 has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
}

const _: () = assert!(size_of::<PointerAttributes>() == 24, "as in CUDA 12");

entry_points! { runtime:
    /// Gives null for 0 bytes, where the driver's function fails.
    fn cudaMalloc(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| match bytes {
            0 => Ok(0),
            _ => {
                let here = sim.runtime_device()?;
                sim.malloc(here, bytes)
            }
        })
    }

    /// Host memory has the same address on the device if CUDA allocated it.
    fn cudaPointerGetAttributes(attributes: Out<PointerAttributes>, addr: u64) |sim| {
        let (kind, device) = if sim.is_device_address(addr) {
            (ON_DEVICE, sim.settings.ordinal_of(addr).cast_signed())
        } else if sim.is_pinned(addr) {
            (PINNED, context::current().unwrap_or(0).cast_signed())
        } else {
            (UNREGISTERED, NO_DEVICE)
        };
        attributes.set(PointerAttributes {
            kind,
            device,
            device_pointer: if kind == UNREGISTERED { 0 } else { addr },
            host_pointer: if kind == ON_DEVICE { 0 } else { addr },
        })
    }

    /// Gives null for 0 bytes, where the driver's function fails.
    fn cudaMallocAsync(addr: Out<u64>, bytes: u64, stream: u64) |sim| {
        addr.fill(|| match bytes {
            0 => Ok(0),
            _ => {
                let here = sim.runtime_device()?;
                sim.malloc_in_pool(here, None, bytes, stream)
            }
        })
    }

    fn cudaFreeAsync(addr: u64, stream: u64) |sim| {
        let here = sim.runtime_device()?;
        match addr {
            0 => Ok(()),
            _ => sim.free_in_pool_on(here, addr, stream),
        }
    }
}
