//! The binary buddy system: blocks are powers of two, split in halves and merged with the half they were
//! split from.
//!
//! ```text
//!  chunk of 2^30 bytes, at any multiple of 2 MiB; buddies are found by their offset in it
//! ├───────────────────────────────────────────────────────────────┤
//! │ 2^29, allocated               │ 2^28, free    │ 2^28, partly free
//!                                   └─ its buddy ──► │ 2^27  │ 2^27 …
//! ```
//!
//! One setting: `chunk`, the bytes to take from the device at once, rounded up to a power of two; 1 GiB
//! by default.
//!
//! Source: Knuth, *The Art of Computer Programming*, volume 1, section 2.5, algorithms R (reservation)
//! and S (liberation), for a region of a power of two. Beyond Knuth:
//! - memory is taken from the device in chunks, each a separate buddy system. A chunk has `chunk` bytes,
//!   or the size of the request if that is larger. The size is halved until the device can serve it;
//! - before a request fails, unused chunks are returned;
//! - among free blocks of equal size the lowest address is taken. Knuth's lists keep the order in which
//!   blocks were freed.
//!
//! It supports one stream.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served, only_default};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, Status, StreamId};

/// The binary logarithm of a block's bytes.
type Order = u32;

/// The smallest block: 512 bytes.
const MIN_ORDER: Order = 9;
/// Number of orders: the bits of an address.
const ORDERS: usize = u64::BITS as usize;

/// The largest block, larger than any device: 2^60 bytes.
const LARGEST: u64 = 1 << 60;

/// Default bytes of a chunk: 1 GiB.
const DEFAULT_CHUNK: u64 = 1 << 30;

/// The binary buddy system.
#[derive(Debug)]
pub struct Buddy {
    /// The order of a chunk, unless the request is larger or the device has less memory left.
    chunk_order: Order,
    /// The order of each chunk by its address. A block never crosses chunks.
    chunks: BTreeMap<DeviceAddr, Order>,
    /// Free blocks by order. No two of them are buddies.
    free: [BTreeSet<DeviceAddr>; ORDERS],
}

impl Buddy {
    /// Takes `chunk`, in bytes.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let chunk = settings.take_bytes("chunk", DEFAULT_CHUNK)?;
        Ok(Self {
            chunk_order: order_of(chunk.min(LARGEST)),
            chunks: BTreeMap::new(),
            free: [const { BTreeSet::new() }; ORDERS],
        })
    }

    /// Takes the lowest of the smallest free blocks of at least this order, and frees its upper halves
    /// until it has this order.
    fn reserve(&mut self, order: Order) -> Option<DeviceAddr> {
        let sizes = self.free.iter_mut().zip(0..).skip(order as usize);
        let (addr, found) = sizes
            .filter_map(|(blocks, found)| Some((blocks.pop_first()?, found)))
            .next()?;
        for half in order..found {
            self.free[half as usize].insert(addr.offset(1 << half));
        }
        Some(addr)
    }

    /// Frees a block and merges it with its buddy as long as that is free.
    fn liberate(&mut self, mut addr: DeviceAddr, mut order: Order) {
        let Some((base, whole)) = self.chunk_of(addr) else {
            return;
        };
        while order < whole {
            let buddy = buddy_of(addr, order, base);
            if !self.free[order as usize].remove(&buddy) {
                break;
            }
            addr = addr.min(buddy);
            order += 1;
        }
        self.free[order as usize].insert(addr);
    }

    /// Takes a chunk for a block of this order from the device: of the usual order, or the largest that
    /// the device has memory for.
    fn grow(&mut self, device: &mut dyn Driver, order: Order) -> Status {
        let mut chunk = order.max(self.chunk_order);
        let addr = loop {
            match device.malloc(1 << chunk) {
                Err(DriverError::OutOfMemory) if chunk > order => chunk -= 1,
                result => break result?,
            }
        };
        self.chunks.insert(addr, chunk);
        self.free[chunk as usize].insert(addr);
        Ok(())
    }

    /// Returns the unused chunks.
    fn release_idle(&mut self, device: &mut dyn Driver) -> Status {
        let free = &self.free;
        let idle = |(&base, &order): (&DeviceAddr, &Order)| {
            let is_idle = free[order as usize].contains(&base);
            is_idle.then_some((base, order))
        };
        let idle: Vec<_> = self.chunks.iter().filter_map(idle).collect();
        for (base, order) in idle {
            device.free(base, 1 << order)?;
            self.chunks.remove(&base);
            self.free[order as usize].remove(&base);
        }
        Ok(())
    }

    /// Returns the chunk that contains an address: its start and order.
    fn chunk_of(&self, addr: DeviceAddr) -> Option<(DeviceAddr, Order)> {
        let (&base, &order) = self.chunks.range(..=addr).next_back()?;
        (addr.offset_from(base) < 1 << order).then_some((base, order))
    }
}

impl Policy for Buddy {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        let order = order_of(bytes);
        let addr = match self.reserve(order) {
            Some(addr) => addr,
            None => {
                if let Err(error) = self.grow(device, order) {
                    if error != DriverError::OutOfMemory {
                        return Err(error.into());
                    }
                    self.release_idle(device)?;
                    self.grow(device, order)?;
                }
                self.reserve(order).ok_or(Refusal::OutOfMemory)?
            }
        };
        Ok(Block::new(addr, 1 << order, stream))
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Served {
        self.liberate(block.addr, order_of(block.bytes));
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        Ok(self.release_idle(device)?)
    }

    fn check(&self) -> Result<(), Violation> {
        let mut free = BTreeMap::new();
        for (blocks, order) in self.free.iter().zip(0..) {
            free.extend(blocks.iter().map(|&addr| (addr, order)));
        }
        let mut end = DeviceAddr::NULL;
        for (&addr, &order) in &free {
            let Some((base, whole)) = self.chunk_of(addr) else {
                ensure!(false, "free block {addr} is in no chunk");
                continue;
            };
            let offset = addr.offset_from(base);
            ensure!(
                order <= whole && offset.is_multiple_of(1 << order),
                "free block {addr} of order {order} does not fit the chunk of order {whole} at {base}"
            );
            ensure!(addr >= end, "free block {addr} overlaps another");
            end = addr.offset(1 << order);
            let buddy = buddy_of(addr, order, base);
            ensure!(
                order == whole || free.get(&buddy) != Some(&order),
                "free blocks {addr} and {buddy} of order {order} are buddies"
            );
        }
        Ok(())
    }
}

/// Returns the order of the smallest block with at least `bytes`, at most [`LARGEST`].
fn order_of(bytes: u64) -> Order {
    bytes.next_power_of_two().ilog2().max(MIN_ORDER)
}

/// Returns the other half of the block that a block was split from.
fn buddy_of(addr: DeviceAddr, order: Order, base: DeviceAddr) -> DeviceAddr {
    base.offset(addr.offset_from(base) ^ 1 << order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};

    const MIB: u64 = 1 << 20;

    fn device() -> SimDevice {
        SimDevice::new(&SimConfig::with_capacity(100 * MIB))
    }

    /// Derives the free blocks from the live ones: the largest blocks that contain no live one.
    fn free_blocks(buddy: &Buddy, live: &[Block]) -> BTreeSet<(Order, DeviceAddr)> {
        let mut free = BTreeSet::new();
        let mut rest: Vec<_> = buddy
            .chunks
            .iter()
            .map(|(&base, &order)| (order, base))
            .collect();
        while let Some((order, addr)) = rest.pop() {
            let end = addr.offset(1 << order);
            let within = |block: &&Block| addr <= block.addr && block.addr < end;
            match live.iter().find(within) {
                None => {
                    free.insert((order, addr));
                }
                Some(block) if block.bytes < 1 << order => {
                    rest.extend([
                        (order - 1, addr),
                        (order - 1, addr.offset(1 << (order - 1))),
                    ]);
                }
                Some(_) => {}
            }
        }
        free
    }

    proptest! {
        /// Compared with a stateless model: the lowest of the smallest free blocks is taken.
        #[test]
        fn decisions_are_those_of_the_definition(
            ops in prop::collection::vec((any::<bool>(), 0_u32..24, 1_u64..512, any::<prop::sample::Index>()), 1..300)
        ) {
            let (mut device, mut buddy) = (device(), PolicySettings::read("chunk:8MiB", Buddy::from_settings).unwrap());
            let mut live: Vec<Block> = Vec::new();
            for (malloc, shift, mantissa, victim) in ops {
                if malloc || live.is_empty() {
                    let bytes = mantissa << shift >> 8 | 1;
                    let free = free_blocks(&buddy, &live);
                    let expected = free.range((order_of(bytes), DeviceAddr::NULL)..).next().map(|&(_, addr)| addr);
                    let Ok(block) = buddy.malloc(&mut device, bytes, StreamId::DEFAULT) else {
                        prop_assert_eq!(expected, None);
                        continue;
                    };
                    prop_assert!(block.bytes >= bytes && (block.bytes < 2 * bytes || block.bytes == 512));
                    if let Some(expected) = expected {
                        prop_assert_eq!(block.addr, expected);
                    }
                    live.push(block);
                } else {
                    let block = live.swap_remove(victim.index(live.len()));
                    buddy.free(&mut device, block).unwrap();
                }
                buddy.check().unwrap();
                let mut free = BTreeSet::new();
                for (blocks, order) in buddy.free.iter().zip(0..) {
                    free.extend(blocks.iter().map(|&addr| (order, addr)));
                }
                prop_assert_eq!(free, free_blocks(&buddy, &live));
            }
        }
    }
}
