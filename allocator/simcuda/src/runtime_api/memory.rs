//! Memory in one piece.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};

/// `cudaMemoryTypeUnregistered`, `cudaMemoryTypeDevice`.
const UNREGISTERED: i32 = 0;
const ON_DEVICE: i32 = 2;

/// The device of what is on none (`cudaInvalidDeviceId`).
const NO_DEVICE: i32 = -2;

/// `cudaPointerAttributes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<PointerAttributes>() == 88, "as in CUDA 13.0");

/// `cudaIpcMemHandle_t`: an address and nothing else, as there is one process only.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle {
    addr: u64,
    reserved: [u64; 7],
}

entry_points! { runtime:
    fn cudaMemGetInfo(free: Out<u64>, total: Out<u64>) |sim| {
        let here = sim.runtime_device()?;
        let (free_bytes, total_bytes) = sim.memory_info(here)?;
        free.set_if_wanted(free_bytes);
        total.set_if_wanted(total_bytes);
        Ok(())
    }

    /// Nothing at null for 0 bytes, unlike the driver's.
    fn cudaMalloc(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| match bytes {
            0 => Ok(0),
            _ => {
                let here = sim.runtime_device()?;
                sim.malloc(here, bytes)
            }
        })
    }

    fn cudaFree(addr: u64) |sim| {
        sim.runtime_device()?;
        match addr {
            0 => Ok(()),
            _ => sim.free(addr),
        }
    }

    fn cudaPointerGetAttributes(attributes: Out<PointerAttributes>, addr: u64) |sim| {
        let on_device = sim.is_device_address(addr);
        let device = sim.settings.ordinal_of(addr).cast_signed();
        attributes.set(PointerAttributes {
            kind: if on_device { ON_DEVICE } else { UNREGISTERED },
            device: if on_device { device } else { NO_DEVICE },
            device_pointer: if on_device { addr } else { 0 },
            host_pointer: if on_device { 0 } else { addr },
            reserved: [0; 8],
        })
    }

    fn cudaIpcGetMemHandle(handle: Out<IpcHandle>, addr: u64) |_| {
        handle.set(IpcHandle { addr, reserved: [0; 7] })
    }

    fn cudaIpcOpenMemHandle(addr: Out<u64>, handle: IpcHandle, _flags: u32) |_| {
        addr.set(handle.addr)
    }

    fn cudaIpcCloseMemHandle(_addr: u64) |_| {
        Ok(())
    }
}
