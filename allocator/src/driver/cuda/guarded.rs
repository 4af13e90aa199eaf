//! Allocations between unmapped addresses, for finding accesses beyond a block or after its end.

use std::collections::{BTreeMap, VecDeque};

use super::CudaDevice;
use crate::driver::{DeviceAddr, Driver as _, DriverError, HandleKind, Status, VirtualMemory};

/// Allocations begin at multiples of this many bytes, as those of `cuMemAlloc`.
const ALIGNMENT: u64 = 512;
/// The most freed ranges whose addresses are not used again yet. An access to one of them fails.
const MOST_RETIRED: usize = 1 << 14;

/// Where a range of addresses starts, and its bytes: memory in whole pages, and an unmapped page on each side.
type Range = (DeviceAddr, u64);

/// The ranges of guarded allocations.
#[derive(Debug, Default)]
pub(super) struct Guards {
    live: BTreeMap<DeviceAddr, Range>,
    retired: VecDeque<Range>,
}

impl CudaDevice {
    /// Gives each later allocation addresses of its own: it ends where unmapped memory begins, to 512 bytes, and
    /// its addresses are used again after 16,384 further frees. Each takes whole pages and several driver calls.
    ///
    /// # Errors
    /// [`DriverError::NotSupported`] if the device has no virtual memory.
    pub fn guard_allocations(&mut self) -> Status {
        self.virtual_memory.ok_or(DriverError::NotSupported)?;
        self.guards = Some(Guards::default());
        Ok(())
    }

    pub(super) fn malloc_guarded(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let page = self.granularity;
        let mapped = bytes.max(1).checked_next_multiple_of(page);
        let reserved = mapped.and_then(|mapped| mapped.checked_add(2 * page));
        let reserved = reserved.ok_or(DriverError::OutOfMemory)?;
        let start = self.reserve(reserved)?;
        let (memory, mapped) = (start.offset(page), reserved - 2 * page);
        if let Err(error) = self.map_guarded(memory, mapped) {
            // Nothing is mapped, so this succeeds.
            let _ = self.free_address(start, reserved);
            return Err(error);
        }
        let addr = memory.offset((mapped - bytes) / ALIGNMENT * ALIGNMENT);
        let guards = self.guards.get_or_insert_default();
        guards.live.insert(addr, (start, reserved));
        Ok(addr)
    }

    /// Maps new memory, which lives as long as its mapping.
    fn map_guarded(&mut self, memory: DeviceAddr, mapped: u64) -> Status {
        let handle = self.create(mapped, HandleKind::FileDescriptor)?;
        let done = self.map(memory, mapped, handle).and_then(|()| {
            let accessible = self.set_access(memory, mapped);
            accessible.or_else(|error| self.unmap(memory, mapped).and(Err(error)))
        });
        self.release(handle, mapped)?;
        done
    }

    /// Waits for all work, as `cuMemFree` does.
    pub(super) fn free_guarded(&mut self, addr: DeviceAddr) -> Status {
        let page = self.granularity;
        let live = self.guards.as_ref().and_then(|it| it.live.get(&addr));
        let range = *live.ok_or(DriverError::InvalidValue)?;
        self.synchronize_device()?;
        self.unmap(range.0.offset(page), range.1 - 2 * page)?;
        let guards = self.guards.get_or_insert_default();
        guards.live.remove(&addr);
        guards.retired.push_back(range);
        if guards.retired.len() <= MOST_RETIRED {
            return Ok(());
        }
        let oldest = guards.retired.pop_front();
        oldest.map_or(Ok(()), |(start, bytes)| self.free_address(start, bytes))
    }
}
