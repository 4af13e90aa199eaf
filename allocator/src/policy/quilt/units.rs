//! Physical memory: *units*, each one handle, which are mapped contiguously at their *home*.
//!
//! A position is an offset in bytes from the start of the home range. Free memory is tracked by position, because
//! memory that is contiguous at home needs no other mapping.

use std::collections::BTreeMap;

use crate::driver::{DeviceAddr, Driver, DriverError, GRANULARITY, HandleKind, MemoryHandle};
use crate::policy::Served;
use crate::policy::free_runs::Run;
use crate::policy::undo::{Step, Undo};

use super::memory_of;

/// Bytes of the smallest unit, and the granularity of all of them.
pub(super) const PAGE: u64 = GRANULARITY;
/// A unit is usually at most this fraction (1/256) of the most memory that all units ever had, so that small programs have
/// small units. A mapping costs the same for a unit of any size, but a view can only contain whole units in its middle.
const USUAL_PART: u64 = 256;
/// Bytes of the largest usual unit.
const LARGEST_USUAL: u64 = 16 << 20;
/// Units are larger if even this fraction (1/512) of that memory is.
const LARGE_PART: u64 = 512;
/// And if this fraction (1/32) of what a request lacks is: a block of gigabytes is mapped again as a whole.
const REQUEST_PART: u64 = 32;
/// Bytes of the largest of these.
const LARGEST_BY_NEED: u64 = 64 << 20;
/// A program that empties its cache pays for each unit again. Its units double each time, but not more often than this.
const MOST_DOUBLINGS: u32 = 4;
/// While there are private pools, which keep whole units, they double less often.
const MOST_DOUBLINGS_BESIDE_POOLS: u32 = 2;
/// They are halved instead if more than this fraction (1/16) of its memory is free then but cannot be returned, because units
/// are in use in part.
const LEFT_PART: u64 = 16;
/// Bytes of the largest unit.
pub(super) const LARGEST: u64 = LARGEST_USUAL << MOST_DOUBLINGS;
/// Bytes of the home range, as a multiple of the device's memory. The gaps that returned units leave are reused, but a
/// gap may be too small for the next unit.
const HOME_FACTOR: u64 = 2;

/// Physical memory behind one handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unit {
    /// Its home.
    pub(super) run: Run,
    pub(super) handle: MemoryHandle,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    addr: DeviceAddr,
    bytes: u64,
}

/// All units.
#[derive(Debug, Default)]
pub(super) struct Units {
    home: Option<Home>,
    by_start: BTreeMap<u64, Unit>,
    /// Bytes of all units.
    bytes: u64,
    /// The most bytes that they ever had.
    most_bytes: u64,
    /// How often the next units are doubled.
    doublings: u32,
}

impl Units {
    /// Bytes of all units.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The home address of a position.
    pub(super) fn addr(&self, position: u64) -> DeviceAddr {
        let home = self.home.map_or(DeviceAddr::NULL, |home| home.addr);
        home.offset(position)
    }

    /// The position of a home address.
    pub(super) fn position(&self, addr: DeviceAddr) -> u64 {
        addr.offset_from(self.addr(0))
    }

    /// The unit around a position.
    pub(super) fn around(&self, position: u64) -> Option<Unit> {
        let (_, &unit) = self.by_start.range(..=position).next_back()?;
        (position < unit.run.end()).then_some(unit)
    }

    /// The units that start in a run, by position.
    pub(super) fn within(&self, run: Run) -> impl Iterator<Item = Unit> {
        let units = self.by_start.range(run.start..run.end());
        units.map(|(_, &unit)| unit)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Unit> {
        self.by_start.values().copied()
    }

    /// Bytes that the next units have at least, if the device has them.
    pub(super) fn least(&self) -> u64 {
        if self.doublings == 0 {
            return PAGE;
        }
        1 << self.usual().ilog2()
    }

    /// Bytes that the next units have at most while there are private pools.
    pub(super) fn largest_beside_pools(&self) -> u64 {
        self.usual() << MOST_DOUBLINGS_BESIDE_POOLS
    }

    /// Creates a unit of at most `bytes`, at least [`PAGE`], and maps it at home.
    pub(super) fn create(
        &mut self,
        device: &mut dyn Driver,
        undo: &mut Undo,
        bytes: u64,
    ) -> Served<Unit> {
        let home = self.home(device)?;
        let memory = memory_of(device)?;
        undo.run(memory)?;
        let mut size = self.size_of_next(bytes);
        let handle = loop {
            match memory.create(size, HandleKind::FileDescriptor) {
                Err(DriverError::OutOfMemory) if size > PAGE => size /= 2,
                answer => break answer?,
            }
        };
        let mut made = Undo::default();
        made.push(Step::Release {
            handle,
            bytes: size,
        });
        let Some(start) = self.room_for(size, home.bytes) else {
            return Err(undo
                .take_back(memory, made, DriverError::OutOfMemory)
                .into());
        };
        let addr = home.addr.offset(start);
        if let Err(error) = memory.map(addr, size, handle) {
            return Err(undo.take_back(memory, made, error).into());
        }
        made.push(Step::Unmap { addr, bytes: size });
        if let Err(error) = memory.set_access(addr, size) {
            return Err(undo.take_back(memory, made, error).into());
        }
        let run = Run { start, bytes: size };
        let unit = Unit { run, handle };
        self.by_start.insert(start, unit);
        self.bytes += size;
        self.most_bytes = self.most_bytes.max(self.bytes);
        Ok(unit)
    }

    /// Removes a unit that is mapped at home only. It is returned to the device when `undo` runs.
    pub(super) fn remove(&mut self, undo: &mut Undo, unit: Unit) {
        let Run { start, bytes } = unit.run;
        self.by_start.remove(&start);
        self.bytes -= bytes;
        let handle = unit.handle;
        undo.push(Step::Release { handle, bytes });
        let addr = self.addr(start);
        undo.push(Step::Unmap { addr, bytes });
    }

    /// Notes that all units without blocks were returned, of `before` bytes. In the others, `left` bytes are free.
    pub(super) fn note_return(&mut self, before: u64, left: u64) {
        if self.bytes == before {
            return;
        }
        self.doublings = if left > self.most_bytes / LEFT_PART {
            self.doublings.saturating_sub(1)
        } else {
            (self.doublings + 1).min(MOST_DOUBLINGS)
        };
    }

    /// Frees the home address range when `undo` runs, if no unit is left.
    pub(super) fn leave_home(&mut self, undo: &mut Undo) {
        if self.by_start.is_empty()
            && let Some(Home { addr, bytes }) = self.home.take()
        {
            undo.push(Step::FreeAddress { addr, bytes });
        }
    }

    fn home(&mut self, device: &mut dyn Driver) -> Served<Home> {
        if let Some(home) = self.home {
            return Ok(home);
        }
        let memory = device.total_memory().checked_next_multiple_of(PAGE);
        let bytes = memory
            .and_then(|memory| memory.checked_mul(HOME_FACTOR))
            .ok_or(DriverError::OutOfMemory)?;
        let addr = memory_of(device)?.reserve(bytes)?;
        Ok(*self.home.insert(Home { addr, bytes }))
    }

    /// Bytes of a usual unit.
    fn usual(&self) -> u64 {
        (self.most_bytes / USUAL_PART).clamp(PAGE, LARGEST_USUAL)
    }

    /// Bytes of the next unit, of which at most `bytes` are needed.
    fn size_of_next(&self, bytes: u64) -> u64 {
        let usual = self.usual() << self.doublings;
        let share = (self.most_bytes / LARGE_PART).max(bytes / REQUEST_PART);
        let largest = if share > LARGEST_USUAL {
            usual.max(share.min(LARGEST_BY_NEED))
        } else {
            usual
        };
        let most = largest.min(bytes).max(PAGE);
        1 << most.ilog2()
    }

    /// The lowest position with room for a unit.
    fn room_for(&self, bytes: u64, home: u64) -> Option<u64> {
        let end = |unit: Unit| unit.run.end();
        let last = self.by_start.values().next_back().copied().map_or(0, end);
        if last == self.bytes {
            // There are no gaps.
            return (last + bytes <= home).then_some(last);
        }
        let mut position = 0;
        for unit in self.iter() {
            if position + bytes <= unit.run.start {
                break;
            }
            position = unit.run.end();
        }
        (position + bytes <= home).then_some(position)
    }
}
