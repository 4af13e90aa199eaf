//! Physical memory: *units*, each one handle, which are mapped contiguously at their *home*.
//!
//! A position is an offset in bytes from the start of the home range. Free memory is tracked by position, because
//! memory that is contiguous at home needs no other mapping.

use std::collections::BTreeMap;

use crate::driver::{DeviceAddr, Driver, DriverError, HandleKind, MemoryHandle};
use crate::policy::Served;
use crate::policy::free_runs::Run;
use crate::policy::undo::{Step, Undo};

use super::memory_of;
use super::sizes::{PAGE, Sizes};

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
    sizes: Sizes,
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

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
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
        let mut size = self.sizes.next(bytes);
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
        self.sizes.note_bytes(self.bytes);
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
        self.sizes.note_return(left);
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
