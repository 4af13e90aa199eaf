//! Which pages of an expandable segment are mapped, and which of them other processes open.

use super::*;
use crate::driver::sim::{SimConfig, SimDevice};
use crate::driver::{Driver as _, SharedHandle};

const PAGE: u64 = 2 << 20;

/// A device whose memory can be shared: each handle by its number.
struct Sharing(SimDevice);

impl Sharing {
    fn device(&mut self) -> &mut dyn VirtualMemory {
        self.0.virtual_memory().unwrap()
    }
}

impl VirtualMemory for Sharing {
    fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr> {
        self.device().reserve(bytes)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.device().free_address(addr, bytes)
    }

    fn create(&mut self, bytes: u64, kind: HandleKind) -> Status<MemoryHandle> {
        self.device().create(bytes, kind)
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        self.device().release(handle, bytes)
    }

    fn export(&mut self, handle: MemoryHandle, _: HandleKind) -> Status<SharedHandle> {
        Ok(SharedHandle::FileDescriptor(handle.0 as i32))
    }

    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        self.device().map(addr, bytes, handle)
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.device().set_access(addr, bytes)
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.device().unmap(addr, bytes)
    }
}

#[test]
fn a_block_is_shared_with_all_pages_that_contain_it() {
    let mut vm = Sharing(SimDevice::new(&SimConfig::default()));
    let mut segment = ExpandableSegment::reserve(&mut vm, 6 * PAGE, PAGE).unwrap();
    let base = segment.base();
    let failures = LaterFailures::AreErrors;
    let mapped = segment.map(&mut vm, &mut None, failures, base, 4 * PAGE);
    assert_eq!(mapped, Ok(Some(4 * PAGE)));
    let mut shared = |first: u64, bytes: u64| {
        let kind = HandleKind::FileDescriptor;
        segment.export(&mut vm, kind, base.offset(first), bytes)
    };
    let (start, all) = shared(0, 4 * PAGE).unwrap();
    assert_eq!((start, all.len()), (base, 4));
    for (first, bytes, pages) in [
        (0, 512, 0..1),
        (0, PAGE, 0..1),
        (PAGE - 512, 1024, 0..2),
        (PAGE, PAGE, 1..2),
        (2 * PAGE - 512, PAGE + 1024, 1..4),
        (3 * PAGE, PAGE, 3..4),
    ] {
        let expected = (
            base.offset(pages.start as u64 * PAGE),
            all[pages.clone()].to_vec(),
        );
        assert_eq!(shared(first, bytes), Ok(expected), "{bytes} at {first}");
    }
}

/// The list of its pages does not fit into the memory of the host.
#[test]
fn a_range_of_too_many_pages_is_a_lack_of_memory() {
    let mut vm = Sharing(SimDevice::new(&SimConfig::default()));
    let mut segment = ExpandableSegment::reserve(&mut vm, PAGE, PAGE).unwrap();
    (segment.page_size, segment.page_count) = (1, 1 << 60);
    let base = segment.base();
    let failures = LaterFailures::AreErrors;
    let mapped = segment.map(&mut vm, &mut None, failures, base, 1 << 60);
    assert_eq!(mapped, Ok(None));
}
