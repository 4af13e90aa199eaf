//! Memory and events of other processes.

use crate::border::{Out, entry_points};
use crate::context;
use crate::ipc::Handle;

entry_points! { driver:
    fn cuIpcGetMemHandle(handle: Out<Handle>, addr: u64) |sim| {
        handle.fill(|| sim.share_memory(addr))
    }

    fn cuIpcOpenMemHandle_v2(addr: Out<u64>, handle: Handle, _flags: u32) |sim| {
        context::required()?;
        addr.fill(|| sim.open_memory(handle))
    }

    fn cuIpcCloseMemHandle(addr: u64) |sim| { sim.close_memory(addr) }

    fn cuIpcGetEventHandle(handle: Out<Handle>, event: u64) |sim| {
        handle.fill(|| sim.share_event(event))
    }

    fn cuIpcOpenEventHandle(event: Out<u64>, handle: Handle) |sim| {
        event.fill(|| sim.open_event(context::required()?, handle))
    }

    fn cuMemExportToShareableHandle(file: Out<i32>, handle: u64, kind: i32, _flags: u64) |sim| {
        file.fill(|| sim.export_memory(handle, kind))
    }

    fn cuMemImportFromShareableHandle(handle: Out<u64>, file: u64, kind: i32) |sim| {
        handle.fill(|| sim.import_memory(file, kind))
    }
}
