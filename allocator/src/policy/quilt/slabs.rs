//! *Slabs*: blocks for many small requests of a stream.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::check::Violation;
use crate::driver::DeviceAddr;

use super::free_runs::{FreeRuns, Run};

/// Bytes of a slab.
pub(super) const SLAB: u64 = 2 << 20;
/// Distance of slabs in positions: larger than a slab, so that free runs of two slabs never touch.
const DISTANCE: u64 = 2 * SLAB;

/// The slabs of a stream.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    /// Address of each slab, by number.
    slabs: BTreeMap<u64, DeviceAddr>,
    /// Numbers of slabs that are gone.
    unused: Vec<u64>,
    /// Free bytes by position: the number of the slab × [`DISTANCE`] + the offset in it.
    free: FreeRuns,
    blocks: HashMap<DeviceAddr, Run, FixedState>,
}

impl Slabs {
    /// Takes a block of the slab where it fits best.
    pub(super) fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let start = self.free.fitting(bytes).next()?.start;
        let addr = self
            .slabs
            .get(&(start / DISTANCE))?
            .offset(start % DISTANCE);
        let run = Run { start, bytes };
        self.free.take(run);
        self.blocks.insert(addr, run);
        Some(addr)
    }

    /// Frees a block. Returns the address of its slab if that is empty and another one is, too.
    pub(super) fn give(&mut self, addr: DeviceAddr) -> Option<DeviceAddr> {
        let run = self.blocks.remove(&addr)?;
        let free = self.free.give(run);
        let is_spare = free.bytes == SLAB && self.free.fitting(SLAB).nth(1).is_some();
        is_spare.then(|| self.remove(free)).flatten()
    }

    /// Adds an empty slab.
    pub(super) fn add(&mut self, addr: DeviceAddr) {
        let number = self.unused.pop().unwrap_or(self.slabs.len() as u64);
        self.slabs.insert(number, addr);
        self.free.give(Run {
            start: number * DISTANCE,
            bytes: SLAB,
        });
    }

    /// Removes an empty slab, if there is one.
    pub(super) fn take_empty(&mut self) -> Option<DeviceAddr> {
        let run = self.free.fitting(SLAB).next()?;
        self.remove(run)
    }

    fn remove(&mut self, slab: Run) -> Option<DeviceAddr> {
        self.free.take(slab);
        let number = slab.start / DISTANCE;
        self.unused.push(number);
        self.slabs.remove(&number)
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.free.check()
    }
}
