//! Two-level segregated fit over blocks of device memory, as in the Vulkan Memory Allocator.
//!
//! Small requests are regions of blocks of 256 MiB (`regions.rs`), which are tried from the fullest to the
//! emptiest. A request of more than half a block gets its own allocation, which is returned when it is
//! freed. At most one empty block is kept.
//!
//! One setting: `block`, the preferred bytes of a block on devices of more than 1 GiB
//! (`preferredLargeHeapBlockSize`); 256 MiB by default.
//!
//! Source: Vulkan Memory Allocator 3.3.0, `vk_mem_alloc.h`: `AllocateMemoryOfType` and `VmaBlockVector`, as
//! `vmaAllocateMemory` reaches them without flags and without `VK_EXT_memory_budget`. Requests are rounded
//! up to 256 bytes, the alignment that Vulkan drivers report. Differences:
//! - the number of device allocations is not limited (`maxMemoryAllocationCount`);
//! - an error of the device other than lack of memory ends the request;
//! - `empty_cache`, which VMA does not have, returns the empty block.
//!
//! It supports one stream.

mod regions;

use std::collections::BTreeMap;

use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served, only_default};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, Status, StreamId};

use self::regions::Regions;

/// Granularity of requests and alignment of all memory, in bytes.
const ALIGNMENT: u64 = 256;
/// `VMA_DEFAULT_LARGE_HEAP_BLOCK_SIZE`: 256 MiB.
const LARGE_HEAP_BLOCK: u64 = 256 << 20;
/// `VMA_SMALL_HEAP_MAX_SIZE`: on a device of at most 1 GiB, a block has an eighth of it.
const SMALL_HEAP: u64 = 1 << 30;
/// `NEW_BLOCK_SIZE_SHIFT_MAX`: a new block has at least an eighth of the preferred size.
const NEW_BLOCK_SIZE_SHIFT_MAX: u32 = 3;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Tlsf {
    /// Preferred bytes of a block on a device of more than 1 GiB.
    large_heap_block: u64,
    blocks: BTreeMap<DeviceAddr, Regions>,
    /// The blocks in the order in which they are tried: nearly sorted by free bytes.
    order: Vec<DeviceAddr>,
    /// Bytes of the allocations for single requests.
    dedicated: BTreeMap<DeviceAddr, u64>,
    /// Bytes reserved from the device.
    held: u64,
}

impl Tlsf {
    /// Takes `block`, in bytes.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let large_heap_block = settings.take_bytes("block", LARGE_HEAP_BLOCK)?;
        Ok(Self {
            large_heap_block,
            ..Self::default()
        })
    }

    /// Takes an allocation for this request alone.
    fn allocate_dedicated(&mut self, device: &mut dyn Driver, bytes: u64) -> Status<DeviceAddr> {
        let addr = device.malloc(bytes)?;
        self.dedicated.insert(addr, bytes);
        self.held += bytes;
        Ok(addr)
    }

    /// Takes a region of the first block with room, or of a new block.
    fn allocate_region(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        preferred: u64,
    ) -> Status<DeviceAddr> {
        if bytes > preferred {
            return Err(DriverError::OutOfMemory);
        }
        for &base in &self.order {
            let regions = self.blocks.get_mut(&base);
            if let Some(offset) = regions.and_then(|regions| regions.allocate(bytes)) {
                self.sort_a_little();
                return Ok(base.offset(offset));
            }
        }
        let (base, size) = self.create_block(device, bytes, preferred)?;
        self.held += size;
        let mut regions = Regions::new(size);
        let offset = regions.allocate(bytes);
        self.blocks.insert(base, regions);
        self.order.push(base);
        self.sort_a_little();
        let offset = offset.ok_or(DriverError::OutOfMemory)?;
        Ok(base.offset(offset))
    }

    /// Takes a block from the device. The first blocks are smaller than preferred, and so are blocks that
    /// the device or the budget has no room for otherwise.
    fn create_block(
        &self,
        device: &mut dyn Driver,
        bytes: u64,
        preferred: u64,
    ) -> Status<(DeviceAddr, u64)> {
        let left = budget(device).saturating_sub(self.held);
        if left < bytes {
            return Err(DriverError::OutOfMemory);
        }
        let largest = self.blocks.values().map(Regions::bytes).max().unwrap_or(0);
        let (mut size, mut halvings) = (preferred, 0);
        while halvings < NEW_BLOCK_SIZE_SHIFT_MAX && size / 2 > largest && size / 2 >= bytes * 2 {
            size /= 2;
            halvings += 1;
        }
        loop {
            let taken = if size <= left {
                device.malloc(size)
            } else {
                Err(DriverError::OutOfMemory)
            };
            match taken {
                Err(DriverError::OutOfMemory)
                    if halvings < NEW_BLOCK_SIZE_SHIFT_MAX && size / 2 >= bytes =>
                {
                    size /= 2;
                    halvings += 1;
                }
                taken => return Ok((taken?, size)),
            }
        }
    }

    /// Returns the block to release when the region at `offset` of the block at `base` is freed: a second
    /// empty block, or an empty block over budget.
    fn surplus(&self, base: DeviceAddr, offset: u64, over_budget: bool) -> Option<DeviceAddr> {
        let has_empty = self.blocks.values().any(Regions::is_empty);
        if self.blocks.get(&base)?.is_last(offset) {
            return (has_empty || over_budget).then_some(base);
        }
        let last = *self.order.last()?;
        let last_is_empty = self.blocks.get(&last)?.is_empty();
        last_is_empty.then_some(last)
    }

    /// Returns a block to the device.
    fn release(&mut self, device: &mut dyn Driver, base: DeviceAddr) -> Status {
        let Some(bytes) = self.blocks.get(&base).map(Regions::bytes) else {
            return Ok(());
        };
        device.free(base, bytes)?;
        self.blocks.remove(&base);
        self.held -= bytes;
        self.order.retain(|&other| other != base);
        Ok(())
    }

    /// Swaps the first two neighbours that are in the wrong order (`IncrementallySortBlocks`).
    fn sort_a_little(&mut self) {
        let free = |base: DeviceAddr| self.blocks.get(&base).map(Regions::free_bytes);
        let unsorted = |pair: &[DeviceAddr]| free(pair[0]) > free(pair[1]);
        if let Some(at) = self.order.windows(2).position(unsorted) {
            self.order.swap(at, at + 1);
        }
    }

    /// Returns the block that contains an address.
    fn block_of(&self, addr: DeviceAddr) -> Option<DeviceAddr> {
        let (&base, regions) = self.blocks.range(..=addr).next_back()?;
        (addr.offset_from(base) < regions.bytes()).then_some(base)
    }

    fn preferred_block(&self, device: &dyn Driver) -> u64 {
        let total = device.total_memory();
        let bytes = if total <= SMALL_HEAP {
            total / 8
        } else {
            self.large_heap_block
        };
        bytes.saturating_add(31) / 32 * 32
    }
}

impl Policy for Tlsf {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let preferred = self.preferred_block(device);
        let prefers_dedicated = bytes > preferred / 2;
        let mut taken = Err(DriverError::OutOfMemory);
        if prefers_dedicated {
            taken = self.allocate_dedicated(device, bytes);
        }
        if taken == Err(DriverError::OutOfMemory) {
            taken = self.allocate_region(device, bytes, preferred);
        }
        if taken == Err(DriverError::OutOfMemory) && !prefers_dedicated {
            taken = self.allocate_dedicated(device, bytes);
        }
        Ok(Block::new(taken?, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if let Some(&bytes) = self.dedicated.get(&block.addr) {
            device.free(block.addr, bytes)?;
            self.dedicated.remove(&block.addr);
            self.held -= bytes;
            return Ok(());
        }
        let Some(base) = self.block_of(block.addr) else {
            return Ok(());
        };
        let offset = block.addr.offset_from(base);
        let over_budget = self.held >= budget(device);
        // The device first, so that a failure changes nothing.
        if let Some(surplus) = self.surplus(base, offset, over_budget) {
            self.release(device, surplus)?;
        }
        if let Some(regions) = self.blocks.get_mut(&base) {
            regions.free(offset);
        }
        self.sort_a_little();
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        let empty = |(&base, regions): (&DeviceAddr, &Regions)| regions.is_empty().then_some(base);
        let empty: Vec<_> = self.blocks.iter().filter_map(empty).collect();
        for base in empty {
            self.release(device, base)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        let mut order = self.order.clone();
        order.sort_unstable();
        ensure!(
            order.iter().eq(self.blocks.keys()),
            "the search order does not hold exactly the blocks"
        );
        let bytes = self.blocks.values().map(Regions::bytes);
        let held = bytes.chain(self.dedicated.values().copied()).sum::<u64>();
        ensure!(
            held == self.held,
            "{held} bytes reserved, {} counted",
            self.held
        );
        self.blocks.values().try_for_each(Regions::check)
    }
}

/// The budget without `VK_EXT_memory_budget`: four fifths of the device, whatever other processes use.
fn budget(device: &dyn Driver) -> u64 {
    (u128::from(device.total_memory()) * 8 / 10) as u64
}
