//! Mapped memory of other processes.

use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, MemoryHandle, SharedPage, VirtualMemory,
};

/// Pages of another process, mapped at consecutive addresses.
///
/// They belong to no allocator. What a failed call leaves behind is freed with the device.
#[derive(Debug)]
pub struct OpenedPages {
    start: DeviceAddr,
    /// Bytes of the addresses.
    reserved: u64,
    /// The memory of each page that was imported, and its bytes.
    pages: Vec<(MemoryHandle, u64)>,
    /// How many of the pages are mapped, from the first on.
    mapped: usize,
}

impl OpenedPages {
    /// Maps pages.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] for no page or a page without bytes; otherwise the error of the device. The call
    /// then has no effect.
    pub fn open(device: &mut impl Driver, shared: &[SharedPage]) -> Result<Self, DriverError> {
        let vm = device.virtual_memory().ok_or(DriverError::NotSupported)?;
        let sizes = shared.iter().map(|page| page.bytes);
        let bytes = sizes.clone().try_fold(0, u64::checked_add);
        let bytes = bytes
            .filter(|&bytes| bytes > 0 && sizes.clone().all(|size| size > 0))
            .ok_or(DriverError::InvalidValue)?;
        let mut pages = Self {
            start: vm.reserve(bytes)?,
            reserved: bytes,
            pages: Vec::new(),
            mapped: 0,
        };
        let outcome = pages.fill(vm, shared);
        if outcome.is_err() {
            let _ = pages.unmap(vm);
        }
        outcome.map(|()| pages)
    }

    /// The address of the first page.
    #[must_use]
    pub fn start(&self) -> DeviceAddr {
        self.start
    }

    /// Waits for the work of the device and removes the pages.
    ///
    /// # Errors
    /// If the device fails.
    pub fn close(mut self, device: &mut impl Driver) -> Result<(), DriverError> {
        device.synchronize_device()?;
        let vm = device.virtual_memory().ok_or(DriverError::NotSupported)?;
        self.unmap(vm)
    }

    fn fill(
        &mut self,
        vm: &mut dyn VirtualMemory,
        shared: &[SharedPage],
    ) -> Result<(), DriverError> {
        let mut at = self.start;
        for &SharedPage { bytes, handle } in shared {
            let handle = vm.import(bytes, handle)?;
            self.pages.push((handle, bytes));
            vm.map(at, bytes, handle)?;
            self.mapped += 1;
            at = at.offset(bytes);
        }
        vm.set_access(self.start, self.reserved)
    }

    /// Removes what is mapped or imported, and the addresses.
    fn unmap(&mut self, vm: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        let mut at = self.start;
        for &(_, bytes) in &self.pages[..self.mapped] {
            vm.unmap(at, bytes)?;
            at = at.offset(bytes);
        }
        for (handle, bytes) in self.pages.drain(..) {
            vm.release(handle, bytes)?;
        }
        vm.free_address(self.start, self.reserved)
    }
}
