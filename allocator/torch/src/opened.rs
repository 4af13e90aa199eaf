//! Pages of expandable segments of other processes.

use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, MemoryHandle, SharedHandle, VirtualMemory,
};

/// Pages of another process, mapped at consecutive addresses.
///
/// They belong to no allocator. What a failed call leaves behind is freed with the device.
#[derive(Debug)]
pub struct OpenedPages {
    start: DeviceAddr,
    /// Bytes of a page.
    page_size: u64,
    /// The memory of the pages.
    handles: Vec<MemoryHandle>,
    /// How many of the pages are mapped, from the first on.
    mapped: usize,
}

impl OpenedPages {
    /// Maps pages of `page_size` bytes.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] for no page or pages without bytes; otherwise the error of the device. The call
    /// then has no effect.
    pub fn open(
        device: &mut impl Driver,
        page_size: u64,
        shared: &[SharedHandle],
    ) -> Result<Self, DriverError> {
        let vm = device.virtual_memory().ok_or(DriverError::NotSupported)?;
        let bytes = page_size.checked_mul(shared.len() as u64);
        let bytes = bytes
            .filter(|&bytes| bytes > 0)
            .ok_or(DriverError::InvalidValue)?;
        let mut pages = Self {
            start: vm.reserve(bytes)?,
            page_size,
            handles: Vec::new(),
            mapped: 0,
        };
        let outcome = pages.fill(vm, shared);
        if outcome.is_err() {
            let _ = pages.unmap(vm, shared.len());
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
        let count = self.handles.len();
        self.unmap(vm, count)
    }

    fn fill(
        &mut self,
        vm: &mut dyn VirtualMemory,
        shared: &[SharedHandle],
    ) -> Result<(), DriverError> {
        for &page in shared {
            let handle = vm.import(self.page_size, page)?;
            self.handles.push(handle);
            vm.map(self.address_of(self.mapped), self.page_size, handle)?;
            self.mapped += 1;
        }
        vm.set_access(self.start, self.bytes_of(self.mapped))
    }

    /// Removes what is mapped, and the addresses of `count` pages.
    fn unmap(&mut self, vm: &mut dyn VirtualMemory, count: usize) -> Result<(), DriverError> {
        for page in 0..self.mapped {
            vm.unmap(self.address_of(page), self.page_size)?;
        }
        for handle in self.handles.drain(..) {
            vm.release(handle, self.page_size)?;
        }
        vm.free_address(self.start, self.bytes_of(count))
    }

    fn bytes_of(&self, pages: usize) -> u64 {
        pages as u64 * self.page_size
    }

    fn address_of(&self, page: usize) -> DeviceAddr {
        self.start.offset(self.bytes_of(page))
    }
}
