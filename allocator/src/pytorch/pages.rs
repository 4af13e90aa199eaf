//! The pages of one expandable segment.

use std::ops::Range;

use crate::driver::{DeviceAddr, DriverError, HandleKind, MemoryHandle, VirtualMemory};

/// What is behind one page of addresses.
///
/// Between two operations a page is empty or mapped. It is left over only if the device failed twice,
/// at a step and at undoing it; the next operation that needs the page brings it forward, and all
/// that is left over goes when everything cached is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Empty,
    /// Left over: memory that is mapped nowhere.
    Created(MemoryHandle),
    /// Left over: mapped memory that is behind no mapped block.
    Stray(MemoryHandle),
    Mapped(MemoryHandle),
}

/// A range of addresses with memory behind some of its pages.
#[derive(Debug)]
pub(super) struct ExpandableSegment {
    base: DeviceAddr,
    /// Bytes of a page.
    page_size: u64,
    page_count: u64,
    /// From the first page as far as any was ever mapped; those behind are empty.
    pages: Vec<Page>,
    /// Whether its addresses were to go back already, and the device failed.
    given_up: bool,
}

impl ExpandableSegment {
    /// Reserves addresses for `memory` bytes and an eighth more, so that pages can be given up at
    /// the start and taken again at the end.
    pub(super) fn reserve(
        vm: &mut dyn VirtualMemory,
        memory: u64,
        page_size: u64,
    ) -> Result<Self, DriverError> {
        let page_count = memory.saturating_add(memory / 8).div_ceil(page_size);
        let base = vm.reserve(page_count.saturating_mul(page_size))?;
        Ok(Self {
            base,
            page_size,
            page_count,
            pages: Vec::new(),
            given_up: false,
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

    /// Bytes of memory behind the range.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let mapped = self.pages.iter().filter(|p| matches!(p, Page::Mapped(_)));
        mapped.count() as u64 * self.page_size
    }

    /// Maps the pages that hold `bytes` from `addr` on, the start of a page. Returns the bytes of
    /// these pages, or `None` if the device gives no more memory. If it fails, the pages are as
    /// before.
    ///
    /// PyTorch asks for memory that can be shared by fabric first, and by file descriptor from then
    /// on if the first attempt fails other than for lack of memory. If that first attempt went well,
    /// later failures of this kind are taken for a lack of memory.
    pub(super) fn map(
        &mut self,
        vm: &mut dyn VirtualMemory,
        kind: &mut Option<HandleKind>,
        addr: DeviceAddr,
        bytes: u64,
    ) -> Result<Option<u64>, DriverError> {
        let first = self.page_of(addr);
        let pages = first..first + bytes.div_ceil(self.page_size) as usize;
        if self.pages.len() < pages.end {
            let more = pages.end - self.pages.len();
            if self.pages.try_reserve(more).is_err() {
                return Ok(None); // no host memory for the table of so much device memory
            }
            self.pages.resize(pages.end, Page::Empty);
        }
        let before = self.pages[pages.clone()].to_vec();
        let undecided = kind.is_none();
        let asked = *kind.get_or_insert(HandleKind::Fabric);
        let failure = match self.create(vm, asked, pages.clone()) {
            Ok(()) => match self.map_created(vm, pages.clone()) {
                Ok(()) => return Ok(Some(pages.len() as u64 * self.page_size)),
                Err(error) => Err(error),
            },
            Err(DriverError::OutOfMemory) => Ok(None),
            Err(_) if asked == HandleKind::Fabric && !undecided => Ok(None),
            Err(error) => Err(error),
        };
        self.undo(vm, pages.start, &before);
        if undecided && failure.is_err() {
            *kind = Some(HandleKind::FileDescriptor);
            return self.map(vm, kind, addr, bytes);
        }
        failure
    }

    /// The pages that lie wholly in `bytes` from `addr` on.
    pub(super) fn whole_pages(&self, addr: DeviceAddr, bytes: u64) -> Range<usize> {
        let start = addr.offset_from(self.base);
        let first = start.div_ceil(self.page_size);
        let end = (start + bytes) / self.page_size;
        first as usize..end.max(first) as usize
    }

    /// Unmaps pages and returns their memory, in order, until the device fails. Returns where the
    /// unmapped range starts, its bytes, and whether the device failed.
    pub(super) fn unmap(
        &mut self,
        vm: &mut dyn VirtualMemory,
        pages: Range<usize>,
    ) -> (DeviceAddr, u64, Result<(), DriverError>) {
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

    /// Returns the memory of pages that a failing device left over.
    pub(super) fn settle(&mut self, vm: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        for page in 0..self.pages.len() {
            if matches!(self.pages[page], Page::Created(_) | Page::Stray(_)) {
                self.empty(vm, page)?;
            }
        }
        Ok(())
    }

    /// Gives the addresses back. Nothing may be mapped any more.
    pub(super) fn give_up(&mut self, vm: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        self.given_up = true;
        self.settle(vm)?;
        vm.free_address(self.base, self.bytes())
    }

    /// Whether its addresses were to go back already, and the device failed.
    pub(super) fn was_given_up(&self) -> bool {
        self.given_up
    }

    /// Takes memory for the pages.
    fn create(
        &mut self,
        vm: &mut dyn VirtualMemory,
        kind: HandleKind,
        pages: Range<usize>,
    ) -> Result<(), DriverError> {
        for page in pages {
            if self.pages[page] == Page::Empty {
                self.pages[page] = Page::Created(vm.create(self.page_size, kind)?);
            }
        }
        Ok(())
    }

    /// Maps the memory of the pages, then gives access to the whole range.
    fn map_created(
        &mut self,
        vm: &mut dyn VirtualMemory,
        pages: Range<usize>,
    ) -> Result<(), DriverError> {
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

    /// Brings the pages from `first` on back to what they were, as far as the device lets us.
    fn undo(&mut self, vm: &mut dyn VirtualMemory, first: usize, before: &[Page]) {
        for (page, &before) in (first..).zip(before) {
            if self.pages[page] != before {
                // What cannot be undone now waits in its page for the next operation.
                let _ = self.empty(vm, page);
            }
            if let Page::Mapped(handle) = self.pages[page] {
                self.pages[page] = Page::Stray(handle);
            }
        }
    }

    /// Takes a page one step after the other to empty.
    fn empty(&mut self, vm: &mut dyn VirtualMemory, page: usize) -> Result<(), DriverError> {
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
