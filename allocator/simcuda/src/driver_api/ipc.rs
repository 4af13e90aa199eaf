//! Memory and events of other processes.

use crate::border::{In, Out, entry_points};
use crate::context;
use crate::errors::Code;
use crate::ipc::{FABRIC, FILE_DESCRIPTOR, Handle};

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

    fn cuMemExportToShareableHandle(shared: Out<u8>, handle: u64, kind: u32, _flags: u64) |sim| {
        match u8::try_from(kind) {
            Ok(FILE_DESCRIPTOR) => shared.cast().fill(|| sim.export_as_file(handle)),
            Ok(FABRIC) => shared.cast().fill(|| sim.export_over_fabric(handle)),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// A file is passed as the value of the pointer.
    fn cuMemImportFromShareableHandle(handle: Out<u64>, shared: In<Handle>, kind: u32) |sim| {
        match u8::try_from(kind) {
            Ok(FILE_DESCRIPTOR) => handle.fill(|| sim.import_file(shared.value())),
            Ok(FABRIC) => handle.fill(|| sim.import_over_fabric(shared.get()?)),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}
