//! Sebastian Aaltonen's OffsetAllocator over blocks of device memory.
//!
//! Free regions of a block are kept in 256 bins, by sizes that are written as floating point numbers of
//! three bits of mantissa: a free region is in the bin of its size rounded down, a request takes the
//! region freed last of the first bin, of those from its own size rounded up on, that is not empty. So
//! a region of up to an eighth more than the request may be passed over, and the time to find one never
//! grows.
//!
//! Source: the crate offset-allocator 0.2.0 itself, by which Bevy places its meshes: it decides where in
//! a block. It knows units, whose number is 32 bits, and no memory. Ours is what lies between:
//! - a unit is 256 bytes, so that a block cannot have more than 1 TiB;
//! - blocks have 256 MiB as the Vulkan Memory Allocator's, or half as many as often as the device has
//!   not so many left, and are tried from the lowest address on; what does not fit into an empty block
//!   gets memory of its own, which is returned when it is freed;
//! - there are at most as many allocations in a block as it has 4 KiB, since the crate takes host memory
//!   for them in advance;
//! - before a request fails, blocks nobody uses are returned.
//!
//! One stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use offset_allocator::ext::min_allocator_size;
use offset_allocator::{Allocation, Allocator};

use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, only_default};
use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};

/// Bytes of a unit.
const UNIT: u64 = 256;
/// Units for which there is one allocation at most.
const UNITS_PER_ALLOCATION: u32 = 16;
/// The fewest there is room for, however small the block.
const FEWEST_ALLOCATIONS: u32 = 64;
/// The most, however large: what the crate makes room for if it is not told.
const MOST_ALLOCATIONS: u32 = 128 << 10;
/// The bytes of a block unless the settings say otherwise: 256 MiB.
const DEFAULT_BLOCK: u64 = 256 << 20;

/// See the [module](self).
pub struct OffsetAllocator {
    /// Units of a block, if the device has so many left.
    block: u32,
    arenas: BTreeMap<DeviceAddr, Arena>,
    /// Memory of single requests.
    dedicated: BTreeSet<DeviceAddr>,
}

/// A block and what is where in it.
struct Arena {
    units: u32,
    allocator: Allocator,
    /// What was handed out, by the unit it begins with.
    live: HashMap<u32, Allocation>,
}

impl OffsetAllocator {
    /// One setting: `block`, the bytes to take from the device at once, less than 1 TiB; 256 MiB unless
    /// given.
    ///
    /// # Errors
    /// [`PolicySettingsError`] if `conf` says something else.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let block = settings.take_bytes("block", DEFAULT_BLOCK)?;
        Ok(Self {
            block: u32::try_from(block / UNIT).unwrap_or(u32::MAX),
            arenas: BTreeMap::new(),
            dedicated: BTreeSet::new(),
        })
    }

    /// Memory in a block there is.
    fn place(&mut self, units: u64) -> Option<DeviceAddr> {
        let units = u32::try_from(units).ok()?;
        self.arenas
            .iter_mut()
            .find_map(|(&base, arena)| Some(base.offset(arena.place(units)?)))
    }

    /// Memory from the device: in a new block, or else for this request alone.
    fn take(&mut self, device: &mut dyn Driver, units: u64) -> Result<DeviceAddr, DriverError> {
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

    /// Returns the blocks nobody uses.
    fn release_idle(&mut self, device: &mut dyn Driver) -> Result<(), DriverError> {
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

/// Whether an empty block takes a request. A request is rounded up to a bin, a block rounded down.
fn fits(units: u64, block: u32) -> bool {
    // Rounded up beyond 32 bits it is less than it was.
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

    /// How many bytes above the block's start the memory is.
    fn place(&mut self, units: u32) -> Option<u64> {
        let allocation = self.allocator.allocate(units)?;
        self.live.insert(allocation.offset, allocation);
        Some(u64::from(allocation.offset) * UNIT)
    }
}

impl Policy for OffsetAllocator {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
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
        Ok(Block {
            addr,
            bytes: units * UNIT,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
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

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
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
                "the block at {base} has {} units, but {all} are free or handed out",
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
        /// What is asked for in bytes is where the crate, asked in units, puts it.
        #[test]
        fn units_change_none_of_the_answers(
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
    fn what_no_block_takes_has_memory_of_its_own() {
        let mut device = SimDevice::new(&SimConfig::with_capacity(100 * MIB));
        let mut policy =
            PolicySettings::read("block:30MiB", OffsetAllocator::from_settings).unwrap();
        let mut take = |bytes| {
            let block = policy
                .malloc(&mut device, bytes, StreamId::DEFAULT)
                .unwrap();
            (block, device.used() / MIB)
        };
        // 29 MiB are no bin: rounded up they are 30.
        assert_eq!(take(29 * MIB).1, 30);
        assert_eq!(take(MIB).1, 30);
        let (own, used) = take(30 * MIB + 1);
        assert_eq!((own.bytes, used), (30 * MIB + 256, 62));
        assert_eq!(take(20 * MIB).1, 92);
        assert_eq!(take(5 * MIB).1, 92);
        // Neither 30 MiB nor 15 are left, but 7.5.
        assert_eq!(take(6 * MIB).1, 100);
        policy.free(&mut device, own).unwrap();
        assert_eq!(device.used() / MIB, 68);
    }

    #[test]
    fn the_smallest_blocks_hold_something() {
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
    fn a_block_has_no_more_units_than_32_bits_count() {
        let policy = PolicySettings::read("block:4TiB", OffsetAllocator::from_settings).unwrap();
        assert_eq!(policy.block, u32::MAX);
        assert!(fits(1 << 31, u32::MAX));
        assert!(!fits(1 << 32, u32::MAX));
        assert!(!fits(u64::from(u32::MAX), u32::MAX));
    }
}
