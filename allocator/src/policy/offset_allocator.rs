//! Sebastian Aaltonen's OffsetAllocator over blocks of device memory.
//!
//! The free regions of a block are kept in 256 bins. A bin is a size written as a floating-point number
//! with three bits of mantissa. A free region belongs to the bin of its size, rounded down. A request
//! takes the region freed last from the first nonempty bin at or above its size, rounded up. It may pass
//! over a region that is up to an eighth larger than the request, but the search takes constant time.
//!
//! One setting: `block`, the bytes of a block, less than 1 TiB; 256 MiB by default.
//!
//! Source: the crate offset-allocator 0.2.0, which Bevy uses to place meshes, decides where in a block a
//! request goes. It counts in units, with 32 bits, and manages no memory. The rest is ours:
//! - a unit is 256 bytes, so a block has at most 1 TiB;
//! - blocks have 256 MiB, as in the Vulkan Memory Allocator. If the device has less memory left, the size
//!   is halved until the device can serve it. Blocks are tried from the lowest address on. A request that
//!   does not fit an empty block gets its own allocation, which is returned when it is freed;
//! - a block holds at most one allocation for each 4 KiB, because the crate allocates host memory for
//!   them in advance;
//! - before a request fails, unused blocks are returned.
//!
//! It supports one stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use offset_allocator::ext::min_allocator_size;
use offset_allocator::{Allocation, Allocator};

use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served, only_default};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, Status, StreamId};

/// Bytes of a unit.
const UNIT: u64 = 256;
/// Units of a block for each allocation that it can hold.
const UNITS_PER_ALLOCATION: u32 = 16;
/// Minimum number of allocations that a block can hold.
const FEWEST_ALLOCATIONS: u32 = 64;
/// Maximum number of allocations that a block can hold, the crate's default.
const MOST_ALLOCATIONS: u32 = 128 << 10;
/// Default bytes of a block: 256 MiB.
const DEFAULT_BLOCK: u64 = 256 << 20;

/// See the [module](self).
pub struct OffsetAllocator {
    /// Units of a block, if the device has that much memory left.
    block: u32,
    arenas: BTreeMap<DeviceAddr, Arena>,
    /// Allocations for single requests.
    dedicated: BTreeSet<DeviceAddr>,
}

/// A block and its allocations.
struct Arena {
    units: u32,
    allocator: Allocator,
    /// Live allocations by their first unit.
    live: HashMap<u32, Allocation>,
}

impl OffsetAllocator {
    /// Takes `block`, in bytes.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let block = settings.take_bytes("block", DEFAULT_BLOCK)?;
        Ok(Self {
            block: u32::try_from(block / UNIT).unwrap_or(u32::MAX),
            arenas: BTreeMap::new(),
            dedicated: BTreeSet::new(),
        })
    }

    /// Places a request in an existing block.
    fn place(&mut self, units: u64) -> Option<DeviceAddr> {
        let units = u32::try_from(units).ok()?;
        self.arenas
            .iter_mut()
            .find_map(|(&base, arena)| Some(base.offset(arena.place(units)?)))
    }

    /// Takes memory from the device: a new block, or an allocation for this request alone.
    fn take(&mut self, device: &mut dyn Driver, units: u64) -> Status<DeviceAddr> {
        let mut block = self.block;
        while fits(units, block) {
            match device.malloc(u64::from(block) * UNIT) {
                Ok(base) => {
                    self.arenas.insert(base, Arena::new(block));
                    return self.place(units).ok_or(DriverError::OutOfMemory);
                }
                Err(DriverError::OutOfMemory) => block /= 2,
                Err(error) => return Err(error),
            }
        }
        let addr = device.malloc(units * UNIT)?;
        self.dedicated.insert(addr);
        Ok(addr)
    }

    /// Returns the unused blocks.
    fn release_idle(&mut self, device: &mut dyn Driver) -> Status {
        let idle = |(&base, arena): (&DeviceAddr, &Arena)| {
            arena.live.is_empty().then_some((base, arena.units))
        };
        let idle: Vec<_> = self.arenas.iter().filter_map(idle).collect();
        for (base, units) in idle {
            device.free(base, u64::from(units) * UNIT)?;
            self.arenas.remove(&base);
        }
        Ok(())
    }
}

/// Whether a request fits an empty block. Requests are rounded up to a bin, blocks rounded down.
fn fits(units: u64, block: u32) -> bool {
    // A size that overflows when it is rounded up becomes smaller.
    let takes = |units| (units..=block).contains(&min_allocator_size(units));
    u32::try_from(units).is_ok_and(takes)
}

impl Arena {
    fn new(units: u32) -> Self {
        let allocations = units / UNITS_PER_ALLOCATION;
        let allocations = allocations.clamp(FEWEST_ALLOCATIONS, MOST_ALLOCATIONS);
        Self {
            units,
            allocator: Allocator::with_max_allocs(units, allocations),
            live: HashMap::new(),
        }
    }

    /// Places a request. Returns its offset in bytes.
    fn place(&mut self, units: u32) -> Option<u64> {
        let allocation = self.allocator.allocate(units)?;
        self.live.insert(allocation.offset, allocation);
        Some(u64::from(allocation.offset) * UNIT)
    }
}

impl Policy for OffsetAllocator {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        let units = bytes.div_ceil(UNIT);
        let addr = match self.place(units) {
            Some(addr) => addr,
            None => match self.take(device, units) {
                Err(DriverError::OutOfMemory) => {
                    self.release_idle(device)?;
                    self.take(device, units)?
                }
                taken => taken?,
            },
        };
        Ok(Block::new(addr, units * UNIT, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.dedicated.contains(&block.addr) {
            device.free(block.addr, block.bytes)?;
            self.dedicated.remove(&block.addr);
            return Ok(());
        }
        let Some((&base, arena)) = self.arenas.range_mut(..=block.addr).next_back() else {
            return Ok(());
        };
        let unit = u32::try_from(block.addr.offset_from(base) / UNIT);
        if let Some(allocation) = unit.ok().and_then(|unit| arena.live.remove(&unit)) {
            arena.allocator.free(allocation);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        Ok(self.release_idle(device)?)
    }

    fn check(&self) -> Result<(), Violation> {
        for (base, arena) in &self.arenas {
            let sizes = arena.live.values().map(|&allocation| {
                let units = arena.allocator.allocation_size(allocation);
                u64::from(units)
            });
            let free = arena.allocator.storage_report().total_free_space;
            let all = sizes.sum::<u64>() + u64::from(free);
            ensure!(
                all == u64::from(arena.units) || free == 0,
                "the block at {base} has {} units, but {all} are free or live",
                arena.units
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};

    const MIB: u64 = 1 << 20;

    proptest! {
        /// The policy, in bytes, places blocks where the crate, in units, places them.
        #[test]
        fn decisions_are_those_of_the_crate(
            ops in prop::collection::vec((any::<bool>(), 0_u32..19, 0_u64..1 << 19, any::<prop::sample::Index>()), 1..400)
        ) {
            let mut device = SimDevice::new(&SimConfig::with_capacity(4 * MIB));
            let mut policy = PolicySettings::read("block:4MiB", OffsetAllocator::from_settings).unwrap();
            let mut bare: Allocator = Allocator::new(4 << 12);
            let mut live = Vec::new();
            for (malloc, log, low, victim) in ops {
                if malloc || live.is_empty() {
                    let bytes = (1 << log) + low % (1 << log);
                    let block = policy.malloc(&mut device, bytes, StreamId::DEFAULT);
                    let allocation = bare.allocate((bytes as u32).div_ceil(256));
                    prop_assert_eq!(block.is_ok(), allocation.is_some());
                    let (Ok(block), Some(allocation)) = (block, allocation) else {
                        continue;
                    };
                    let base = DeviceAddr(0x200_0000_0000);
                    prop_assert_eq!(block.addr, base.offset(u64::from(allocation.offset) * 256));
                    let size = bare.allocation_size(allocation);
                    prop_assert_eq!(block.bytes, u64::from(size) * 256);
                    live.push((block, allocation));
                } else {
                    let (block, allocation) = live.swap_remove(victim.index(live.len()));
                    policy.free(&mut device, block).unwrap();
                    bare.free(allocation);
                }
                policy.check().unwrap();
            }
        }
    }

    #[test]
    fn the_smallest_blocks_hold_a_request() {
        let mut device = SimDevice::new(&SimConfig::with_capacity(100 * MIB));
        for (block, bytes) in [("block:0", 1), ("block:256", 256), ("block:1KiB", 1000)] {
            let mut policy = PolicySettings::read(block, OffsetAllocator::from_settings).unwrap();
            let own = policy
                .malloc(&mut device, bytes, StreamId::DEFAULT)
                .unwrap();
            assert_eq!(policy.dedicated.contains(&own.addr), block == "block:0");
        }
    }

    #[test]
    fn the_units_of_a_block_fit_32_bits() {
        let policy = PolicySettings::read("block:4TiB", OffsetAllocator::from_settings).unwrap();
        assert_eq!(policy.block, u32::MAX);
        assert!(fits(1 << 31, u32::MAX));
        assert!(!fits(1 << 32, u32::MAX));
        assert!(!fits(u64::from(u32::MAX), u32::MAX));
    }
}
