//! Virtual memory on a CUDA device.

use super::context::VirtualMemory as Calls;
use super::{CudaDevice, size};
use crate::driver::{
    DeviceAddr, DriverError, HandleKind, MemoryHandle, SharedHandle, Status, VirtualMemory,
};

impl CudaDevice {
    fn virtual_memory_calls(&self) -> Status<Calls<'_>> {
        let calls = self.virtual_memory.ok_or(DriverError::NotSupported)?;
        let context = &self.context;
        Ok(Calls { context, calls })
    }

    /// Gives the peers access to existing mappings.
    pub(super) fn open_mappings_to_peers(&mut self) -> Status {
        let mapped: Vec<_> = self.held.mappings.iter().map(|(&a, &b)| (a, b)).collect();
        mapped
            .into_iter()
            .try_for_each(|(addr, bytes)| self.set_access(addr, bytes))
    }
}

impl VirtualMemory for CudaDevice {
    fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let addr = DeviceAddr(self.note(self.virtual_memory_calls()?.reserve(size(bytes)?))?);
        self.held.reservations.insert(addr, bytes);
        Ok(addr)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        if self.held.reservations.get(&addr) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.note(
            self.virtual_memory_calls()?
                .free_address(addr.0, size(bytes)?),
        )?;
        self.held.reservations.remove(&addr);
        Ok(())
    }

    /// Refuses fabric handles without a driver call if the device does not support them.
    fn create(&mut self, bytes: u64, kind: HandleKind) -> Status<MemoryHandle> {
        let kind = self.private.is_none().then_some(kind);
        if kind == Some(HandleKind::Fabric) && !self.has_fabric {
            return Err(DriverError::NotSupported);
        }
        let calls = self.virtual_memory_calls()?;
        let answer = calls.create(size(bytes)?, kind, self.has_rdma);
        let handle = MemoryHandle(self.note(answer)?);
        self.held.handles.insert(handle, bytes);
        Ok(handle)
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        if self.held.handles.get(&handle) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.note(self.virtual_memory_calls()?.release(handle.0))?;
        self.held.handles.remove(&handle);
        #[cfg(unix)]
        self.held.files.remove(&handle);
        Ok(())
    }

    /// Exports a handle as a file only once, so that equal memory has equal names.
    #[cfg(unix)]
    fn export(&mut self, handle: MemoryHandle, kind: HandleKind) -> Status<SharedHandle> {
        use std::os::fd::AsRawFd as _;

        if !self.held.handles.contains_key(&handle) {
            return Err(DriverError::InvalidValue);
        }
        if let Some(why) = self.private {
            return Err(DriverError::Failed(why.to_owned()));
        }
        if kind == HandleKind::Fabric {
            let answer = self.virtual_memory_calls()?.export_over_fabric(handle.0);
            return Ok(SharedHandle::Fabric(self.note(answer)?));
        }
        if !self.held.files.contains_key(&handle) {
            let answer = self.virtual_memory_calls()?.export_as_file(handle.0);
            let file = self.note(answer)?;
            self.held.files.insert(handle, file);
        }
        let file = self
            .held
            .files
            .get(&handle)
            .ok_or(DriverError::InvalidValue)?
            .as_raw_fd();
        Ok(SharedHandle::FileDescriptor(file))
    }

    #[cfg(unix)]
    fn import(&mut self, bytes: u64, shared: SharedHandle) -> Status<MemoryHandle> {
        let calls = self.virtual_memory_calls()?;
        let answer = match shared {
            SharedHandle::Fabric(name) => calls.import_over_fabric(&name),
            SharedHandle::FileDescriptor(file) => calls.import_file(file),
        };
        let handle = MemoryHandle(self.note(answer)?);
        self.held.handles.insert(handle, bytes);
        Ok(handle)
    }

    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        if self.held.handles.get(&handle) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        let calls = self.virtual_memory_calls()?;
        let answer = calls.map(addr.0, size(bytes)?, handle.0);
        self.note(answer)?;
        self.held.mappings.insert(addr, bytes);
        Ok(())
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let calls = self.virtual_memory_calls()?;
        let answer = calls.set_access(addr.0, size(bytes)?, &self.peers);
        self.note(answer)
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        if self.held.mappings.get(&addr) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.note(self.virtual_memory_calls()?.unmap(addr.0, size(bytes)?))?;
        self.held.mappings.remove(&addr);
        Ok(())
    }
}
