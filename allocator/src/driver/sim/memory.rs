//! Physical memory and mappings of the simulated device.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::PhysicalRange;
use crate::driver::{DeviceAddr, DriverError, GRANULARITY, MemoryHandle, MemoryInfo, Status};

#[derive(Debug)]
struct Physical {
    bytes: u64,
    /// Number of its mappings.
    mappings: u32,
    released: bool,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    handle: MemoryHandle,
}

/// Invariant: `used` is the sum of all allocations and of all handles that are mapped or not released.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes in total.
    pub(super) capacity: u64,
    /// Bytes held by other processes.
    pub(super) foreign: u64,
    /// Bytes that this process may use at most.
    pub(super) limit: u64,
    used: u64,
    allocations: HashMap<DeviceAddr, u64, FixedState>,
    reservations: BTreeMap<DeviceAddr, u64>,
    handles: HashMap<MemoryHandle, Physical, FixedState>,
    next_handle: u64,
    mappings: BTreeMap<DeviceAddr, Mapping>,
}

impl Memory {
    pub(super) fn new(capacity: u64, foreign: u64) -> Self {
        Self {
            capacity,
            foreign,
            limit: u64::MAX,
            next_handle: 1,
            ..Self::default()
        }
    }

    /// Bytes that this process and the others may use together.
    fn usable(&self) -> u64 {
        self.capacity.min(self.limit.saturating_add(self.foreign))
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of handles that are not mapped.
    pub(super) fn unmapped(&self) -> u64 {
        let handles = self.handles.values();
        let unmapped = handles.filter(|physical| physical.mappings == 0);
        unmapped.map(|physical| physical.bytes).sum()
    }

    pub(super) fn mapped_behind(&self, addr: DeviceAddr, bytes: u64) -> Vec<PhysicalRange> {
        let end = addr.offset(bytes);
        let around = self.mappings.range(..=addr).next_back();
        let first = around.map_or(addr, |(&start, _)| start);
        let piece = |(&start, mapping): (&DeviceAddr, &Mapping)| {
            let from = addr.max(start);
            let to = end.min(start.offset(mapping.bytes));
            (from < to).then(|| PhysicalRange {
                handle: mapping.handle,
                offset: from.offset_from(start),
                bytes: to.offset_from(from),
            })
        };
        self.mappings.range(first..end).filter_map(piece).collect()
    }

    pub(super) fn info(&self) -> MemoryInfo {
        MemoryInfo {
            free: self
                .usable()
                .saturating_sub(self.used.saturating_add(self.foreign)),
            total: self.capacity,
        }
    }

    pub(super) fn ensure_free(&self, bytes: u64) -> Status {
        let others = self.used.checked_add(self.foreign);
        match others.and_then(|others| others.checked_add(bytes)) {
            Some(wanted) if wanted <= self.usable() => Ok(()),
            _ => Err(DriverError::OutOfMemory),
        }
    }

    pub(super) fn add_allocation(&mut self, addr: DeviceAddr, bytes: u64) {
        self.used += bytes;
        self.allocations.insert(addr, bytes);
    }

    /// Bytes of the allocation that starts at `addr`.
    pub(super) fn allocation_at(&self, addr: DeviceAddr) -> Option<u64> {
        self.allocations.get(&addr).copied()
    }

    pub(super) fn allocation_around(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        let mut all = self
            .allocations
            .iter()
            .map(|(&start, &bytes)| (start, bytes));
        all.find(|&(start, bytes)| (start..start.offset(bytes)).contains(&addr))
    }

    pub(super) fn remove_allocation(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        if self.allocation_at(addr) != Some(bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.allocations.remove(&addr);
        self.used -= bytes;
        Ok(())
    }

    /// Bytes behind a handle that was not released.
    pub(super) fn memory_of(&self, handle: MemoryHandle) -> Option<u64> {
        let physical = self.handles.get(&handle)?;
        (!physical.released).then_some(physical.bytes)
    }

    pub(super) fn reserved_addresses(&self) -> u64 {
        self.reservations.values().sum()
    }

    pub(super) fn add_reservation(&mut self, addr: DeviceAddr, bytes: u64) {
        self.reservations.insert(addr, bytes);
    }

    pub(super) fn remove_reservation(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let whole = self.reservations.get(&addr) == Some(&bytes);
        if !whole || self.overlaps_a_mapping(addr, bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.reservations.remove(&addr);
        Ok(())
    }

    pub(super) fn create(&mut self, bytes: u64) -> Status<MemoryHandle> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(DriverError::InvalidValue);
        }
        self.ensure_free(bytes)?;
        self.used += bytes;
        let handle = MemoryHandle(self.next_handle);
        self.next_handle += 1;
        let physical = Physical {
            bytes,
            mappings: 0,
            released: false,
        };
        self.handles.insert(handle, physical);
        Ok(handle)
    }

    pub(super) fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        match self.handles.get_mut(&handle) {
            Some(physical) if !physical.released && physical.bytes == bytes => {
                physical.released = true;
                self.drop_if_unused(handle);
                Ok(())
            }
            _ => Err(DriverError::InvalidValue),
        }
    }

    pub(super) fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        if !addr.0.is_multiple_of(GRANULARITY)
            || !self.is_reserved(addr, bytes)
            || self.overlaps_a_mapping(addr, bytes)
        {
            return Err(DriverError::InvalidValue);
        }
        match self.handles.get_mut(&handle) {
            Some(physical) if !physical.released && physical.bytes == bytes => {
                physical.mappings += 1;
                self.mappings.insert(addr, Mapping { bytes, handle });
                Ok(())
            }
            _ => Err(DriverError::InvalidValue),
        }
    }

    pub(super) fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let handle = match self.mappings.get(&addr) {
            Some(mapping) if mapping.bytes == bytes => mapping.handle,
            _ => return Err(DriverError::InvalidValue),
        };
        self.mappings.remove(&addr);
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.mappings -= 1;
        }
        self.drop_if_unused(handle);
        Ok(())
    }

    /// Fails unless mappings cover all of `bytes` from `addr`.
    pub(super) fn ensure_mapped(&self, addr: DeviceAddr, bytes: u64) -> Status {
        let end = addr.0.saturating_add(bytes);
        let mut covered = addr.0;
        for (start, mapping) in self.mappings.range(addr..DeviceAddr(end)) {
            if start.0 != covered {
                break;
            }
            covered += mapping.bytes;
        }
        if covered == end {
            Ok(())
        } else {
            Err(DriverError::InvalidValue)
        }
    }

    fn drop_if_unused(&mut self, handle: MemoryHandle) {
        if let Some(physical) = self.handles.get(&handle)
            && physical.released
            && physical.mappings == 0
        {
            self.used -= physical.bytes;
            self.handles.remove(&handle);
        }
    }

    fn is_reserved(&self, addr: DeviceAddr, bytes: u64) -> bool {
        self.reservations
            .range(..=addr)
            .next_back()
            .is_some_and(|(&start, &length)| {
                bytes <= length && addr.offset_from(start) <= length - bytes
            })
    }

    fn overlaps_a_mapping(&self, addr: DeviceAddr, bytes: u64) -> bool {
        let end = DeviceAddr(addr.0.saturating_add(bytes));
        self.mappings
            .range(..end)
            .next_back()
            .is_some_and(|(&start, mapping)| start.0 + mapping.bytes > addr.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = GRANULARITY;
    const BASE: DeviceAddr = DeviceAddr(16 * PAGE);

    fn with_reservation() -> Memory {
        let mut memory = Memory::new(4 * PAGE, 0);
        memory.add_reservation(BASE, 8 * PAGE);
        memory
    }

    #[test]
    fn a_handle_mapped_twice_is_charged_once_until_the_last_unmap() {
        let mut memory = with_reservation();
        let handle = memory.create(PAGE).unwrap();
        memory.map(BASE, PAGE, handle).unwrap();
        memory.map(BASE.offset(PAGE), PAGE, handle).unwrap();
        assert_eq!(memory.used(), PAGE);
        memory.release(handle, PAGE).unwrap();
        memory.unmap(BASE, PAGE).unwrap();
        assert_eq!(memory.used(), PAGE, "still mapped once");
        memory.unmap(BASE.offset(PAGE), PAGE).unwrap();
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn mapped_memory_is_reported_in_pieces() {
        let mut memory = with_reservation();
        let (a, b) = (memory.create(PAGE).unwrap(), memory.create(PAGE).unwrap());
        assert_eq!(memory.unmapped(), 2 * PAGE);
        for (page, handle) in [(1, a), (2, b), (4, a)] {
            memory.map(BASE.offset(page * PAGE), PAGE, handle).unwrap();
        }
        assert_eq!(memory.unmapped(), 0);
        let piece = |handle, offset, bytes| PhysicalRange {
            handle,
            offset,
            bytes,
        };
        let found = memory.mapped_behind(BASE.offset(PAGE + 100), 2 * PAGE);
        assert_eq!(found, [piece(a, 100, PAGE - 100), piece(b, 0, PAGE)]);
        let found = memory.mapped_behind(BASE.offset(4 * PAGE + 1), 2);
        assert_eq!(found, [piece(a, 1, 2)]);
        assert_eq!(memory.mapped_behind(BASE.offset(3 * PAGE), PAGE), []);
    }

    #[test]
    fn invalid_ranges_and_handles_are_refused_without_effect() {
        let mut memory = with_reservation();
        let handle = memory.create(PAGE).unwrap();
        let invalid = Err(DriverError::InvalidValue);
        assert_eq!(memory.map(BASE.offset(8 * PAGE), PAGE, handle), invalid);
        assert_eq!(memory.map(BASE, 2 * PAGE, handle), invalid);
        memory.map(BASE, PAGE, handle).unwrap();
        assert_eq!(memory.map(BASE, PAGE, handle), invalid, "already mapped");
        assert_eq!(memory.remove_reservation(BASE, 8 * PAGE), invalid);
        assert_eq!(memory.ensure_mapped(BASE, 2 * PAGE), invalid);
        assert_eq!(memory.unmap(BASE.offset(PAGE), PAGE), invalid);
        memory.release(handle, PAGE).unwrap();
        assert_eq!(memory.release(handle, PAGE), invalid);
        assert_eq!(memory.create(1), invalid.map(|()| MemoryHandle(0)));
        assert_eq!(memory.used(), PAGE);
    }

    #[test]
    fn capacity_counts_other_processes() {
        let mut memory = Memory::new(4 * PAGE, 2 * PAGE);
        assert_eq!(memory.info().free, 2 * PAGE);
        assert!(memory.create(2 * PAGE).is_ok());
        assert_eq!(memory.create(PAGE), Err(DriverError::OutOfMemory));
        memory.capacity = PAGE;
        assert_eq!(memory.info().free, 0, "less than the memory in use");
    }
}
