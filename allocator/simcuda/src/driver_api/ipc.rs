//! Virtual memory of other processes.

use crate::border::{In, Out, entry_points};
use crate::errors::Code;
use crate::ipc::{FABRIC, FILE_DESCRIPTOR, Handle};

entry_points! { driver:
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
