//! Allocations between unmapped addresses, for finding accesses beyond a block or after its end.

use std::collections::{BTreeMap, VecDeque};

use super::CudaDevice;
use crate::driver::{DeviceAddr, Driver as _, DriverError, HandleKind, Status, VirtualMemory};

/// Allocations begin at multiples of this many bytes, as those of `cuMemAlloc`.
const ALIGNMENT: u64 = 512;
/// The most ranges of freed allocations whose addresses are not used again yet. An access to one of them fails.
const MOST_RETIRED: usize = 1 << 14;

/// The addresses of guarded allocations: each range has one unmapped page before the memory and one behind it.
#[derive(Debug, Default)]
pub(super) struct Guards {
    live: BTreeMap<DeviceAddr, Range>,
    retired: VecDeque<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    start: DeviceAddr,
    /// Bytes of memory, whole pages.
    mapped: u64,
}

impl Range {
    /// Bytes with the unmapped pages.
    fn bytes(self, page: u64) -> u64 {
        self.mapped.saturating_add(2 * page)
    }
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
        let mapped = bytes.checked_next_multiple_of(page);
        let mapped = mapped.ok_or(DriverError::OutOfMemory)?.max(page);
        let start = self.reserve(
            Range {
                start: DeviceAddr::NULL,
                mapped,
            }
            .bytes(page),
        )?;
        let range = Range { start, mapped };
        let memory = start.offset(page);
        if let Err(error) = self.map_guarded(memory, mapped) {
            // Nothing is mapped, so this succeeds.
            let _ = self.free_address(start, range.bytes(page));
            return Err(error);
        }
        let addr = memory.offset((mapped - bytes) / ALIGNMENT * ALIGNMENT);
        if let Some(guards) = &mut self.guards {
            guards.live.insert(addr, range);
        }
        Ok(addr)
    }

    /// Maps new memory, which lives as long as its mapping.
    fn map_guarded(&mut self, memory: DeviceAddr, mapped: u64) -> Status {
        let handle = self.create(mapped, HandleKind::FileDescriptor)?;
        let done = self.map(memory, mapped, handle);
        let done = done.and_then(|()| {
            let accessible = self.set_access(memory, mapped);
            accessible.or_else(|error| self.unmap(memory, mapped).and(Err(error)))
        });
        self.release(handle, mapped)?;
        done
    }

    /// Waits for all work, as `cuMemFree` does.
    pub(super) fn free_guarded(&mut self, addr: DeviceAddr) -> Status {
        let page = self.granularity;
        let live = |guards: &Guards| guards.live.get(&addr).copied();
        let range = self
            .guards
            .as_ref()
            .and_then(live)
            .ok_or(DriverError::InvalidValue)?;
        self.synchronize_device()?;
        self.unmap(range.start.offset(page), range.mapped)?;
        let Some(guards) = &mut self.guards else {
            return Ok(());
        };
        guards.live.remove(&addr);
        guards.retired.push_back(range);
        let is_full = guards.retired.len() > MOST_RETIRED;
        let oldest = is_full.then(|| guards.retired.pop_front()).flatten();
        oldest.map_or(Ok(()), |oldest| {
            self.free_address(oldest.start, oldest.bytes(page))
        })
    }
}
