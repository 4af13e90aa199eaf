//! Memory and events of other processes.

use crate::border::{Out, shared_entry_points};
use crate::ipc::Handle;

shared_entry_points! {
    fn cuIpcGetMemHandle, cudaIpcGetMemHandle(handle: Out<Handle>, addr: u64) |sim, _| {
        handle.fill(|| sim.share_memory(addr))
    }

    fn cuIpcOpenMemHandle_v2, cudaIpcOpenMemHandle(
        addr: Out<u64>,
        handle: Handle,
        _flags: u32,
    ) |sim, api| {
        api.device(sim)?;
        addr.fill(|| sim.open_memory(handle))
    }

    fn cuIpcCloseMemHandle, cudaIpcCloseMemHandle(addr: u64) |sim, _| { sim.close_memory(addr) }

    fn cuIpcGetEventHandle, cudaIpcGetEventHandle(handle: Out<Handle>, event: u64) |sim, _| {
        handle.fill(|| sim.share_event(event))
    }

    fn cuIpcOpenEventHandle, cudaIpcOpenEventHandle(event: Out<u64>, handle: Handle) |sim, api| {
        event.fill(|| {
            let here = api.device(sim)?;
            sim.open_event(here, handle)
        })
    }
}
