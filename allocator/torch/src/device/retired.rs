//! What is left of a policy that failed.

use std::collections::{BTreeMap, HashSet};

use coalesce_alloc::driver::{DeviceAddr, Driver, MemoryHandle, Status};
use coalesce_alloc::error::Error;

use super::DeviceAllocator;
use crate::failure::guarded;

/// A policy that serves no more requests, and the memory that tensors of earlier requests still use.
///
/// Mapped memory is returned to the device as soon as no live block is in it. The policy is not asked, because its state may be
/// damaged.
pub struct Retired<D: Driver> {
    device: DeviceAllocator<D>,
    /// The bytes of each live block.
    live: BTreeMap<DeviceAddr, u64>,
    /// Whether memory without live blocks is unused. A graph may use it.
    returns_memory: bool,
}

impl<D: Driver + 'static> Retired<D> {
    /// Returns the memory that no live block uses.
    pub fn new(device: DeviceAllocator<D>) -> Self {
        let segments = guarded(|| Ok(device.allocator().segments()));
        let returns_memory = segments.is_ok() && !device.had_pools();
        let segments = segments.unwrap_or_default();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let live = blocks.filter(|block| block.is_active());
        let live = live.map(|block| (block.address, block.size)).collect();
        let mut retired = Self {
            device,
            live,
            returns_memory,
        };
        // What the device does not take back now is offered again with the next free.
        let _ = retired.return_unused();
        retired
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if no live block starts there; [`Error::VirtualMemory`] if the device fails.
    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        let special = self.device.special();
        if special.is_some_and(|special| special.free(addr, None).is_ok()) {
            return Ok(());
        }
        self.live.remove(&addr).ok_or(Error::InvalidPointer(addr))?;
        self.return_unused().map_err(Error::VirtualMemory)
    }

    /// Whether a live block is in these bytes.
    fn is_used(live: &BTreeMap<DeviceAddr, u64>, addr: DeviceAddr, bytes: u64) -> bool {
        let before_end = live.range(..addr.offset(bytes)).next_back();
        before_end.is_some_and(|(start, size)| start.offset(*size) > addr)
    }

    fn return_unused(&mut self) -> Status {
        if !self.returns_memory {
            return Ok(());
        }
        let device = self.device.allocator_mut().driver_mut();
        let mappings = device.hook().held().mappings();
        let all: Vec<_> = mappings.collect();
        let in_use = all
            .iter()
            .filter(|(addr, mapping)| Self::is_used(&self.live, *addr, mapping.bytes));
        let used: HashSet<MemoryHandle> = in_use.map(|(_, mapping)| mapping.handle).collect();
        let unused = all
            .iter()
            .filter(|(_, mapping)| !used.contains(&mapping.handle));
        let unused: Vec<_> = unused.collect();
        if unused.is_empty() {
            return Ok(());
        }
        device.synchronize_device()?;
        let Some(memory) = device.virtual_memory() else {
            return Ok(());
        };
        let mut returned = HashSet::new();
        for (addr, mapping) in unused {
            memory.unmap(*addr, mapping.bytes)?;
            if returned.insert(mapping.handle) {
                // A policy may have released the handle already.
                let _ = memory.release(mapping.handle, mapping.bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::MempoolId;
    use coalesce_alloc::driver::StreamId;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::conf::Choice;

    const MIB: u64 = 1 << 20;

    fn quilt() -> DeviceAllocator<SimDevice> {
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
        let policy = Choice::Other {
            name: "quilt".to_owned(),
            conf: String::new(),
        };
        DeviceAllocator::new(0, device, &policy, None).unwrap()
    }

    fn block(device: &mut DeviceAllocator<SimDevice>, bytes: u64) -> DeviceAddr {
        device.malloc(bytes, StreamId::DEFAULT).unwrap()
    }

    /// MiB that the policy has from the device.
    fn held(retired: &Retired<SimDevice>) -> i64 {
        let device = retired.device.allocator().driver();
        device.hook().held().bytes().current >> 20
    }

    #[test]
    fn memory_is_returned_with_its_last_block() {
        let mut device = quilt();
        let [first, second, third] = [3, 3, 10].map(|mib| block(&mut device, mib * MIB));
        device.free(third, None).unwrap();
        let mut retired = Retired::new(device);
        assert_eq!(held(&retired), 6, "the third block was free already");
        retired.free(first).unwrap();
        assert_eq!(
            held(&retired),
            4,
            "the second block begins in the second page"
        );
        retired.free(second).unwrap();
        assert_eq!(held(&retired), 0);
        assert_eq!(retired.free(second), Err(Error::InvalidPointer(second)));
    }

    #[test]
    fn memory_of_graphs_is_kept() {
        let mut device = quilt();
        let pool = MempoolId(0, 1);
        device.create_or_use_pool(pool, None).unwrap();
        let block = block(&mut device, 4 * MIB);
        let mut retired = Retired::new(device);
        retired.free(block).unwrap();
        assert_eq!(held(&retired), 4);
    }
}
