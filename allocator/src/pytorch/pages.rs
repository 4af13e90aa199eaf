//! The pages of one expandable segment.

use std::ops::Range;

use crate::driver::{
    DeviceAddr, DriverError, HandleKind, MemoryHandle, SharedPage, Status, VirtualMemory,
};

/// The state of one page of addresses.
///
/// Between operations, a page is empty or mapped. The other states remain only if a driver call failed
/// and undoing it failed too. The next operation that needs the page completes the work, and emptying
/// the cache clears all leftovers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Empty,
    /// Leftover: memory that is not mapped.
    Created(MemoryHandle),
    /// Leftover: mapped memory that belongs to no mapped block.
    Stray(MemoryHandle),
    Mapped(MemoryHandle),
}

/// A range of addresses of which some pages are mapped.
#[derive(Debug)]
pub(super) struct ExpandableSegment {
    base: DeviceAddr,
    /// Bytes of a page.
    page_size: u64,
    page_count: u64,
    /// The pages from the first to the last one ever mapped; those after it are empty.
    pages: Vec<Page>,
    /// Whether the device failed to free the addresses.
    free_pending: bool,
}

/// What a failure for another reason than lack of memory is, after memory that can be shared by fabric was
/// available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LaterFailures {
    /// A lack of memory. Until 2.12.
    AreLackOfMemory,
    /// An error. From 2.13 on.
    AreErrors,
}

impl ExpandableSegment {
    /// Reserves addresses for `bytes` bytes, rounded up to whole pages.
    pub(super) fn reserve(vm: &mut dyn VirtualMemory, bytes: u64, page_size: u64) -> Status<Self> {
        let page_count = bytes.div_ceil(page_size);
        let base = vm.reserve(page_count.saturating_mul(page_size))?;
        Ok(Self {
            base,
            page_size,
            page_count,
            pages: Vec::new(),
            free_pending: false,
        })
    }

    pub(super) fn base(&self) -> DeviceAddr {
        self.base
    }

    /// Bytes of addresses.
    pub(super) fn bytes(&self) -> u64 {
        self.page_count * self.page_size
    }

    pub(super) fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Mapped bytes.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let mapped = self.pages.iter().filter(|p| matches!(p, Page::Mapped(_)));
        mapped.count() as u64 * self.page_size
    }

    /// Maps the pages that contain `bytes` bytes from `addr`, the start of a page. Returns their size
    /// in bytes, or `None` if the device is out of memory. On failure the pages are empty.
    ///
    /// PyTorch first requests memory that can be shared by fabric. If the first attempt fails for
    /// another reason than lack of memory, it uses file descriptors from then on. If the first attempt
    /// succeeded, [`LaterFailures`] says what later failures of this kind are.
    pub(super) fn map(
        &mut self,
        vm: &mut dyn VirtualMemory,
        kind: &mut Option<HandleKind>,
        failures: LaterFailures,
        addr: DeviceAddr,
        bytes: u64,
    ) -> Status<Option<u64>> {
        let first = self.page_of(addr);
        let pages = first..first + bytes.div_ceil(self.page_size) as usize;
        if self.pages.len() < pages.end {
            let more = pages.end - self.pages.len();
            if self.pages.try_reserve(more).is_err() {
                return Ok(None); // not enough host memory for the page table
            }
            self.pages.resize(pages.end, Page::Empty);
        }
        let undecided = kind.is_none();
        let asked = *kind.get_or_insert(HandleKind::Fabric);
        let is_lack_of_memory =
            asked == HandleKind::Fabric && !undecided && failures == LaterFailures::AreLackOfMemory;
        let failure = match self.create(vm, asked, pages.clone()) {
            Ok(()) => match self.map_created(vm, pages.clone()) {
                Ok(()) => return Ok(Some(pages.len() as u64 * self.page_size)),
                Err(error) => Err(error),
            },
            Err(DriverError::OutOfMemory) => Ok(None),
            Err(_) if is_lack_of_memory => Ok(None),
            Err(error) => Err(error),
        };
        self.undo(vm, pages);
        if undecided && failure.is_err() {
            *kind = Some(HandleKind::FileDescriptor);
            return self.map(vm, kind, failures, addr, bytes);
        }
        failure
    }

    /// The pages that lie wholly in the `bytes` bytes from `addr`.
    pub(super) fn whole_pages(&self, addr: DeviceAddr, bytes: u64) -> Range<usize> {
        let start = addr.offset_from(self.base);
        let first = start.div_ceil(self.page_size);
        let end = (start + bytes) / self.page_size;
        first as usize..end.max(first) as usize
    }

    /// Unmaps pages in order and returns their memory until the device fails. Returns the start of the
    /// unmapped range, its bytes, and the outcome.
    pub(super) fn unmap(
        &mut self,
        vm: &mut dyn VirtualMemory,
        pages: Range<usize>,
    ) -> (DeviceAddr, u64, Status) {
        let addr = self.addr_of(pages.start);
        let mut outcome = Ok(());
        let mut unmapped = 0;
        for page in pages {
            outcome = self.empty(vm, page);
            if matches!(self.pages[page], Page::Mapped(_)) {
                break;
            }
            unmapped += self.page_size;
            if outcome.is_err() {
                break;
            }
        }
        (addr, unmapped, outcome)
    }

    /// Exports the pages that contain the mapped `bytes` bytes from `addr`. Returns their start and their memory.
    pub(super) fn export(
        &self,
        vm: &mut dyn VirtualMemory,
        kind: HandleKind,
        addr: DeviceAddr,
        bytes: u64,
    ) -> Status<(DeviceAddr, Vec<SharedPage>)> {
        let first = self.page_of(addr);
        let end = self.page_of(addr.offset(bytes - 1)) + 1;
        let bytes = self.page_size();
        let pages = self.pages[first..end].iter().map(|page| match *page {
            Page::Mapped(handle) => {
                let handle = vm.export(handle, kind)?;
                Ok(SharedPage { bytes, handle })
            }
            Page::Empty | Page::Created(_) | Page::Stray(_) => Err(DriverError::InvalidValue),
        });
        Ok((self.addr_of(first), pages.collect::<Result<_, _>>()?))
    }

    /// Returns the memory of leftover pages.
    pub(super) fn return_leftovers(&mut self, vm: &mut dyn VirtualMemory) -> Status {
        for page in 0..self.pages.len() {
            if matches!(self.pages[page], Page::Created(_) | Page::Stray(_)) {
                self.empty(vm, page)?;
            }
        }
        Ok(())
    }

    /// Frees the addresses. Nothing may be mapped.
    pub(super) fn free_addresses(&mut self, vm: &mut dyn VirtualMemory) -> Status {
        self.free_pending = true;
        self.return_leftovers(vm)?;
        vm.free_address(self.base, self.bytes())
    }

    /// Whether the device failed to free the addresses.
    pub(super) fn is_free_pending(&self) -> bool {
        self.free_pending
    }

    /// Creates memory for the pages.
    fn create(
        &mut self,
        vm: &mut dyn VirtualMemory,
        kind: HandleKind,
        pages: Range<usize>,
    ) -> Status {
        for page in pages {
            if self.pages[page] == Page::Empty {
                self.pages[page] = Page::Created(vm.create(self.page_size, kind)?);
            }
        }
        Ok(())
    }

    /// Maps the memory of the pages, then enables access to the whole range.
    fn map_created(&mut self, vm: &mut dyn VirtualMemory, pages: Range<usize>) -> Status {
        for page in pages.clone() {
            if let Page::Created(handle) = self.pages[page] {
                vm.map(self.addr_of(page), self.page_size, handle)?;
                self.pages[page] = Page::Mapped(handle);
            } else if let Page::Stray(handle) = self.pages[page] {
                self.pages[page] = Page::Mapped(handle);
            }
        }
        vm.set_access(
            self.addr_of(pages.start),
            pages.len() as u64 * self.page_size,
        )
    }

    /// Empties the pages of a mapping that failed, as far as the device allows.
    fn undo(&mut self, vm: &mut dyn VirtualMemory, pages: Range<usize>) {
        for page in pages {
            // If this fails, the page keeps its state for the next operation.
            let _ = self.empty(vm, page);
            if let Page::Mapped(handle) = self.pages[page] {
                self.pages[page] = Page::Stray(handle);
            }
        }
    }

    /// Empties a page, one step after the other.
    fn empty(&mut self, vm: &mut dyn VirtualMemory, page: usize) -> Status {
        if let Page::Mapped(handle) | Page::Stray(handle) = self.pages[page] {
            vm.unmap(self.addr_of(page), self.page_size)?;
            self.pages[page] = Page::Created(handle);
        }
        if let Page::Created(handle) = self.pages[page] {
            vm.release(handle, self.page_size)?;
            self.pages[page] = Page::Empty;
        }
        Ok(())
    }

    fn page_of(&self, addr: DeviceAddr) -> usize {
        (addr.offset_from(self.base) / self.page_size) as usize
    }

    fn addr_of(&self, page: usize) -> DeviceAddr {
        self.base.offset(page as u64 * self.page_size)
    }
}

#[cfg(test)]
mod tests;
