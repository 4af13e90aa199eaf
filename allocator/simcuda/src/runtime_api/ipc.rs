//! Memory and events of other processes.

use crate::border::{Out, entry_points};
use crate::ipc::Handle;

entry_points! { runtime:
    fn cudaIpcGetMemHandle(handle: Out<Handle>, addr: u64) |sim| {
        handle.fill(|| sim.share_memory(addr))
    }

    fn cudaIpcOpenMemHandle(addr: Out<u64>, handle: Handle, _flags: u32) |sim| {
        sim.runtime_device()?;
        addr.fill(|| sim.open_memory(handle))
    }

    fn cudaIpcCloseMemHandle(addr: u64) |sim| { sim.close_memory(addr) }

    fn cudaIpcGetEventHandle(handle: Out<Handle>, event: u64) |sim| {
        handle.fill(|| sim.share_event(event))
    }

    fn cudaIpcOpenEventHandle(event: Out<u64>, handle: Handle) |sim| {
        event.fill(|| {
            let here = sim.runtime_device()?;
            sim.open_event(here, handle)
        })
    }
}
