//! Memory held from a device, derived from its calls: allocations, physical memory behind handles, and the
//! memory reserved by the device's pool.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::base::stat::Stat;
use crate::driver::calls::Call;
use crate::driver::tap::Hook;
use crate::driver::{DeviceAddr, MemoryHandle};

/// Physical memory created separately from addresses.
#[derive(Debug)]
struct Physical {
    bytes: u64,
    /// Addresses it is mapped at.
    mappings: u32,
    /// Whether its handle was released. The memory is then held only while it is mapped.
    is_released: bool,
}

/// The mapping of a handle's memory at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Size in bytes.
    pub bytes: u64,
    /// The handle, mapped as a whole.
    pub handle: MemoryHandle,
}

/// Pages of the device. They hold one large allocation, or several small ones that share a page.
#[derive(Clone, Copy, Debug)]
struct Pages {
    bytes: u64,
    /// The number of allocations, at least one. Only small allocations share a page.
    allocations: u32,
}

/// Tracks the memory held from a device.
///
/// Invariant: `bytes.current` is the sum of the pages of all allocations, of all physical memory, counted once
/// per handle, and of the bytes the pool last reported as reserved.
#[derive(Debug)]
pub struct HeldMemory {
    /// Bytes of a page.
    granularity: u64,
    allocations: BTreeMap<DeviceAddr, Pages>,
    handles: HashMap<MemoryHandle, Physical, FixedState>,
    mappings: BTreeMap<DeviceAddr, Mapping>,
    /// Bytes of the blocks allocated from the pool. The addresses of its free memory are unknown.
    pool_blocks: BTreeMap<DeviceAddr, u64>,
    /// Bytes reserved by the pool.
    pool_reserved: u64,
    bytes: Stat,
    ranges: Stat,
    /// Number of allocations and mappings.
    taken: u64,
    /// Number of frees and unmappings.
    returned: u64,
    /// Number of requests that ran out of memory.
    refused: u64,
    /// Number of calls that were seen.
    calls: u64,
}

impl HeldMemory {
    /// Starts with nothing held from a device of this granularity.
    #[must_use]
    pub fn new(granularity: u64) -> Self {
        Self {
            granularity: granularity.max(1),
            allocations: BTreeMap::new(),
            handles: HashMap::default(),
            mappings: BTreeMap::new(),
            pool_blocks: BTreeMap::new(),
            pool_reserved: 0,
            bytes: Stat::default(),
            ranges: Stat::default(),
            taken: 0,
            returned: 0,
            refused: 0,
            calls: 0,
        }
    }

    /// Rounds an allocation up to the granularity.
    #[must_use]
    pub fn in_pages(&self, bytes: u64) -> u64 {
        let pages = bytes.checked_next_multiple_of(self.granularity);
        pages.unwrap_or(bytes)
    }

    /// The pages of an allocation: address and bytes.
    fn pages_of(&self, addr: DeviceAddr, bytes: u64) -> (DeviceAddr, u64) {
        if bytes < self.granularity {
            let page = DeviceAddr(addr.0 - addr.0 % self.granularity);
            return (page, self.granularity);
        }
        (addr, self.in_pages(bytes))
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> Stat {
        self.bytes
    }

    /// Allocations held. Those that share a page count as one.
    #[must_use]
    pub fn ranges(&self) -> Stat {
        self.ranges
    }

    /// Resets the peaks to the current values.
    pub fn reset_peaks(&mut self) {
        self.bytes.reset_peak();
        self.ranges.reset_peak();
    }

    /// Sets the totals and the numbers of calls to zero.
    pub fn reset_accumulated(&mut self) {
        self.bytes.reset_accumulated();
        self.ranges.reset_accumulated();
        (self.taken, self.returned) = (0, 0);
    }

    /// Returns how often memory was allocated or mapped.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how often memory was freed or unmapped.
    #[must_use]
    pub fn returned(&self) -> u64 {
        self.returned
    }

    /// Returns how many requests ran out of memory.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how many calls were seen. As long as that is the same, no other figure changes but by a reset.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The address and the bytes of the pages of each allocation. Allocations that share a page are one entry.
    pub fn allocations(&self) -> impl Iterator<Item = (DeviceAddr, u64)> {
        let allocations = self.allocations.iter();
        allocations.map(|(&addr, pages)| (addr, pages.bytes))
    }

    /// Returns the address and bytes of the entry of [`HeldMemory::allocations`] that contains `addr`.
    #[must_use]
    #[inline]
    pub fn allocation_around(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        if self.allocations.is_empty() {
            return None; // all memory is mapped
        }
        self.find_allocation(addr)
    }

    fn find_allocation(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        let (&start, pages) = self.allocations.range(..=addr).next_back()?;
        (addr.offset_from(start) < pages.bytes).then_some((start, pages.bytes))
    }

    /// The mappings, ordered by address.
    pub fn mappings(&self) -> impl Iterator<Item = (DeviceAddr, Mapping)> {
        self.mappings
            .iter()
            .map(|(&addr, &mapping)| (addr, mapping))
    }

    /// The mappings that contain the `bytes` bytes from `addr`, and where they start. `None` unless they are consecutive.
    #[must_use]
    pub fn mappings_around(
        &self,
        addr: DeviceAddr,
        bytes: u64,
    ) -> Option<(DeviceAddr, Vec<Mapping>)> {
        let (&start, _) = self.mappings.range(..=addr).next_back()?;
        let end = addr.0.checked_add(bytes)?;
        let mut reached = start;
        let mut found = Vec::new();
        for (&at, &mapping) in self.mappings.range(start..DeviceAddr(end)) {
            if at != reached {
                return None;
            }
            reached = at.offset(mapping.bytes);
            found.push(mapping);
        }
        (reached.0 >= end).then_some((start, found))
    }

    /// The blocks allocated from the device's pool: address and bytes.
    pub fn pool_blocks(&self) -> impl Iterator<Item = (DeviceAddr, u64)> {
        self.pool_blocks.iter().map(|(&addr, &bytes)| (addr, bytes))
    }

    fn take(&mut self, addr: DeviceAddr, bytes: u64) {
        let (start, bytes) = self.pages_of(addr, bytes);
        let new = Pages {
            bytes,
            allocations: 0,
        };
        let pages = self.allocations.entry(start).or_insert(new);
        pages.allocations += 1;
        if pages.allocations == 1 {
            self.bytes.increase(bytes);
            self.ranges.increase(1);
        }
        self.taken += 1;
    }

    /// Does nothing if the allocation is unknown.
    fn give(&mut self, addr: DeviceAddr, bytes: u64) {
        let (start, _) = self.pages_of(addr, bytes);
        let Some(pages) = self.allocations.get_mut(&start) else {
            return;
        };
        pages.allocations -= 1;
        if pages.allocations == 0 {
            self.bytes.decrease(pages.bytes);
            self.allocations.remove(&start);
            self.ranges.decrease(1);
        }
        self.returned += 1;
    }

    fn drop_if_unused(&mut self, handle: MemoryHandle) {
        if let Some(physical) = self.handles.get(&handle)
            && physical.is_released
            && physical.mappings == 0
        {
            self.bytes.decrease(physical.bytes);
            self.handles.remove(&handle);
        }
    }
}

impl Hook for HeldMemory {
    fn after(&mut self, call: &Call) {
        self.calls += 1;
        match *call {
            Call::Malloc { bytes, addr } => self.take(addr, bytes),
            Call::Free { addr, bytes } => self.give(addr, bytes),
            Call::Create { bytes, handle } => {
                let physical = Physical {
                    bytes,
                    mappings: 0,
                    is_released: false,
                };
                self.handles.insert(handle, physical);
                self.bytes.increase(bytes);
            }
            Call::Release { handle } => {
                if let Some(physical) = self.handles.get_mut(&handle) {
                    physical.is_released = true;
                }
                self.drop_if_unused(handle);
            }
            Call::Map {
                addr,
                bytes,
                handle,
            } => {
                if let Some(physical) = self.handles.get_mut(&handle) {
                    physical.mappings += 1;
                }
                self.mappings.insert(addr, Mapping { bytes, handle });
                self.taken += 1;
            }
            Call::Unmap { addr, .. } => {
                let Some(Mapping { handle, .. }) = self.mappings.remove(&addr) else {
                    return;
                };
                if let Some(physical) = self.handles.get_mut(&handle) {
                    physical.mappings -= 1;
                }
                self.drop_if_unused(handle);
                self.returned += 1;
            }
            Call::PoolMalloc { addr, bytes, .. } => {
                self.pool_blocks.insert(addr, bytes);
            }
            Call::PoolFree { addr, .. } => {
                self.pool_blocks.remove(&addr);
            }
            Call::PoolReserved { bytes } => {
                self.bytes
                    .increase(bytes.saturating_sub(self.pool_reserved));
                self.bytes
                    .decrease(self.pool_reserved.saturating_sub(bytes));
                self.pool_reserved = bytes;
            }
            Call::MallocRefused { .. }
            | Call::CreateRefused { .. }
            | Call::PoolMallocRefused { .. } => self.refused += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::GRANULARITY;
    use crate::driver::sim::address::AddressPolicy;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::tap::Tap;
    use crate::driver::{Driver, HandleKind};

    const PAGE: u64 = GRANULARITY;

    #[test]
    fn a_handle_counts_once_for_all_its_mappings() {
        let device = SimDevice::new(&SimConfig::with_capacity(8 * PAGE));
        let mut device = Tap::over(device, HeldMemory::new(PAGE));
        let allocation = device.malloc(1000).unwrap();
        let memory = device.virtual_memory().unwrap();
        let base = memory.reserve(2 * PAGE).unwrap();
        let handle = memory.create(PAGE, HandleKind::FileDescriptor).unwrap();
        memory.map(base, PAGE, handle).unwrap();
        memory.map(base.offset(PAGE), PAGE, handle).unwrap();
        memory.release(handle, PAGE).unwrap();
        memory.unmap(base, PAGE).unwrap();
        let current = |device: &Tap<_, HeldMemory>| device.hook().bytes().current.cast_unsigned();
        assert_eq!(current(&device), 2 * PAGE, "still mapped once");
        let memory = device.virtual_memory().unwrap();
        memory.unmap(base.offset(PAGE), PAGE).unwrap();
        device.free(allocation, 1000).unwrap();
        assert_eq!(current(&device), 0);
        assert_eq!((device.hook().taken(), device.hook().returned()), (3, 3));
    }

    #[test]
    fn the_mappings_around_a_block_are_consecutive() {
        const PAGE: u64 = GRANULARITY;
        let device = SimDevice::new(&SimConfig::default());
        let mut device = Tap::over(device, HeldMemory::new(PAGE));
        let memory = device.virtual_memory().unwrap();
        let base = memory.reserve(8 * PAGE).unwrap();
        // Pages 0, 1 and 2, 3 and, after a gap, 5.
        for (page, pages) in [(0, 1), (1, 2), (3, 1), (5, 1)] {
            let bytes = pages * PAGE;
            let handle = memory.create(bytes, HandleKind::FileDescriptor).unwrap();
            let at = base.offset(page * PAGE);
            memory.map(at, bytes, handle).unwrap();
        }
        let around = |from: u64, bytes| {
            let (start, found) = device.hook().mappings_around(base.offset(from), bytes)?;
            let pages = found.iter().map(|mapping| mapping.bytes / PAGE);
            Some((start.offset_from(base) / PAGE, pages.collect::<Vec<_>>()))
        };
        assert_eq!(around(512, 512), Some((0, vec![1])));
        assert_eq!(around(PAGE - 512, 1024), Some((0, vec![1, 2])));
        assert_eq!(around(2 * PAGE, 2 * PAGE), Some((1, vec![2, 1])));
        assert_eq!(around(3 * PAGE, 3 * PAGE), None, "the gap");
        assert_eq!(around(5 * PAGE, 2 * PAGE), None, "the end");
        assert_eq!(around(6 * PAGE, 512), None);
        assert_eq!(around(0, u64::MAX), None);
    }

    #[test]
    fn allocations_that_share_a_page_count_as_one() {
        let config = SimConfig {
            addresses: AddressPolicy::Cuda,
            ..SimConfig::default()
        };
        let mut device = Tap::over(SimDevice::new(&config), HeldMemory::new(PAGE));
        let held = |device: &Tap<_, HeldMemory>| {
            let held = device.hook();
            (held.bytes().current, held.ranges().current)
        };
        let page = PAGE.cast_signed();
        let [a, b] = [(); 2].map(|()| device.malloc(PAGE / 2).unwrap());
        assert_eq!(held(&device), (page, 1));
        let c = device.malloc(PAGE - 1).unwrap();
        assert_eq!(held(&device), (2 * page, 2));
        assert_eq!(device.hook().allocation_around(b), Some((a, PAGE)));
        device.free(a, PAGE / 2).unwrap();
        device.free(c, PAGE - 1).unwrap();
        assert_eq!(held(&device), (page, 1));
        device.free(b, PAGE / 2).unwrap();
        assert_eq!(held(&device), (0, 0));
    }

    #[test]
    fn finds_the_allocation_that_contains_an_address() {
        let device = SimDevice::new(&SimConfig::default());
        let mut device = Tap::over(device, HeldMemory::new(PAGE));
        let addr = device.malloc(1000).unwrap();
        let around = |by| device.hook().allocation_around(addr.offset(by));
        assert_eq!(around(PAGE - 1), Some((addr, PAGE)));
        assert_eq!(around(PAGE), None);
    }
}
