//! Repeats on the device of this process the driver calls that a library made on its own.

use std::collections::{BTreeMap, HashMap};

use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, EventId, HandleKind, MemoryHandle, StreamId, VirtualMemory,
};

use crate::wire::Unlogged;

/// Why a call could not be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Differs {
    /// Memory is missing or an event is pending, unlike on the device of the library: the workload changed that.
    Surroundings,
    /// Anything else, which should not happen.
    Broken(String),
}

/// Follows the driver calls of a library.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    seen: Unlogged,
    /// Bytes of each allocation, as requested, and of each mapping, by address.
    held: BTreeMap<u64, u64>,
    /// The memory behind each handle of the library, and its bytes.
    handles: HashMap<u64, (MemoryHandle, u64)>,
    /// The newest event. All complete at once, so that one can stand for any other.
    event: Option<EventId>,
    called: bool,
}

impl Mirror {
    /// Whether the library has made any driver call.
    pub(crate) fn saw_calls(&self) -> bool {
        self.called
    }

    /// Whether the library has taken all these bytes from the device.
    pub(crate) fn holds(&self, addr: u64, bytes: u64) -> bool {
        let end = addr.saturating_add(bytes);
        let mut at = addr;
        while at < end {
            let around = self.held.range(..=at).next_back();
            match around.map(|(start, bytes)| start.saturating_add(*bytes)) {
                Some(reached) if reached > at => at = reached,
                _ => return false,
            }
        }
        true
    }

    /// Repeats calls: those that left no line, and the lines of a log.
    pub(crate) fn follow(
        &mut self,
        device: &mut dyn Driver,
        unlogged: Unlogged,
        log: &str,
    ) -> Result<(), Differs> {
        let seen = std::mem::replace(&mut self.seen, unlogged);
        self.called |= seen != unlogged || !log.is_empty();
        let broken = |error: DriverError| Differs::Broken(error.to_string());
        for _ in seen.create_event..unlogged.create_event {
            self.event = Some(device.create_event().map_err(broken)?);
        }
        for _ in seen.query_event..unlogged.query_event {
            if let Some(event) = self.event
                && !device.event_is_complete(event).map_err(broken)?
            {
                return Err(Differs::Surroundings);
            }
        }
        for _ in seen.memory_info..unlogged.memory_info {
            device.memory_info().map_err(broken)?;
        }
        for line in log.lines() {
            let is_equal = self.repeat(device, line).map_err(|error| match error {
                DriverError::OutOfMemory => Differs::Surroundings,
                error => Differs::Broken(format!("'{line}' failed here: {error}")),
            })?;
            if !is_equal {
                let here = format!("'{line}' has another result here");
                return Err(Differs::Broken(here));
            }
        }
        Ok(())
    }

    /// Repeats a call, in the words of [`Call`](coalesce_alloc::driver::calls::Call). Returns whether it has the
    /// result of the original.
    fn repeat(&mut self, device: &mut dyn Driver, line: &str) -> Result<bool, DriverError> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["malloc", bytes, result] => {
                let bytes = number(bytes)?;
                let placed = device.malloc(bytes);
                if result == "OOM" {
                    return Ok(placed == Err(DriverError::OutOfMemory));
                }
                let addr = placed?;
                self.held.insert(addr.0, bytes);
                return Ok(addr.0 == number(result)?);
            }
            ["free", addr] => {
                let addr = number(addr)?;
                let bytes = self.held.remove(&addr).unwrap_or(0);
                device.free(DeviceAddr(addr), bytes)?;
            }
            ["free", addr, "INVALID"] => {
                let freed = device.free(DeviceAddr(number(addr)?), 0);
                return Ok(freed == Err(DriverError::InvalidValue));
            }
            ["event_record", stream] => {
                if let Some(event) = self.event {
                    device.record_event(event, stream_id(stream)?)?;
                }
            }
            ["event_wait", stream] => {
                if let Some(event) = self.event {
                    device.wait_event(stream_id(stream)?, event)?;
                }
            }
            ["event_sync", _] => {
                if let Some(event) = self.event {
                    device.synchronize_event(event)?;
                }
            }
            ["stream_sync", stream] => device.synchronize_stream(stream_id(stream)?)?,
            ["devsync"] => device.synchronize_device()?,
            _ => {
                let memory = device.virtual_memory().ok_or(DriverError::NotSupported)?;
                return self.repeat_on_memory(memory, &words);
            }
        }
        Ok(true)
    }

    fn repeat_on_memory(
        &mut self,
        memory: &mut dyn VirtualMemory,
        words: &[&str],
    ) -> Result<bool, DriverError> {
        match *words {
            ["reserve", bytes, addr] => {
                let placed = memory.reserve(number(bytes)?)?;
                return Ok(placed.0 == number(addr)?);
            }
            ["addrfree", addr, bytes] => {
                memory.free_address(DeviceAddr(number(addr)?), number(bytes)?)?;
            }
            ["create", bytes, result] => {
                let bytes = number(bytes)?;
                let created = memory.create(bytes, HandleKind::FileDescriptor);
                if result == "OOM" {
                    return Ok(created == Err(DriverError::OutOfMemory));
                }
                self.handles.insert(name(result)?, (created?, bytes));
            }
            ["release", handle] => {
                let (handle, bytes) = self.handle(handle)?;
                memory.release(handle, bytes)?;
            }
            ["map", addr, bytes, handle] => {
                let (handle, _) = self.handle(handle)?;
                let (addr, bytes) = (number(addr)?, number(bytes)?);
                memory.map(DeviceAddr(addr), bytes, handle)?;
                self.held.insert(addr, bytes);
            }
            ["setaccess", addr, bytes] => {
                memory.set_access(DeviceAddr(number(addr)?), number(bytes)?)?;
            }
            ["unmap", addr, bytes] => {
                let addr = number(addr)?;
                memory.unmap(DeviceAddr(addr), number(bytes)?)?;
                self.held.remove(&addr);
            }
            _ => return Err(unknown()),
        }
        Ok(true)
    }

    fn handle(&self, text: &str) -> Result<(MemoryHandle, u64), DriverError> {
        let handle = self.handles.get(&name(text)?);
        handle.copied().ok_or_else(unknown)
    }
}

fn unknown() -> DriverError {
    DriverError::Failed("unknown call".to_owned())
}

/// A number, decimal or hexadecimal.
fn number(text: &str) -> Result<u64, DriverError> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| unknown())
}

/// The number of a handle, as in `h7`.
fn name(text: &str) -> Result<u64, DriverError> {
    number(text.strip_prefix('h').ok_or_else(unknown)?)
}

/// A stream, as in `stream=0x10` or `stream=(nil)`.
fn stream_id(text: &str) -> Result<StreamId, DriverError> {
    match text.strip_prefix("stream=").ok_or_else(unknown)? {
        "(nil)" => Ok(StreamId::DEFAULT),
        handle => number(handle).map(StreamId),
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::{SimConfig, SimDevice};

    use super::*;

    /// A device that made every kind of call, with its log.
    fn original() -> (SimDevice, String) {
        let mut device = SimDevice::new(&SimConfig::with_capacity(64 << 20));
        device.set_logging(true);
        let stream = StreamId(0x10);
        let addr = device.malloc(5).unwrap();
        assert!(device.malloc(1 << 30).is_err());
        device.free(addr, 5).unwrap();
        assert!(device.free(addr, 5).is_err());
        let event = device.create_event().unwrap();
        device.record_event(event, stream).unwrap();
        device.wait_event(StreamId::DEFAULT, event).unwrap();
        assert!(device.event_is_complete(event).unwrap());
        device.synchronize_event(event).unwrap();
        device.synchronize_stream(stream).unwrap();
        device.synchronize_device().unwrap();
        device.memory_info().unwrap();
        let page = 2 << 20;
        let memory = device.virtual_memory().unwrap();
        let range = memory.reserve(2 * page).unwrap();
        let handle = memory.create(page, HandleKind::FileDescriptor).unwrap();
        assert!(memory.create(1 << 30, HandleKind::FileDescriptor).is_err());
        memory.map(range, page, handle).unwrap();
        memory.set_access(range, page).unwrap();
        memory.unmap(range, page).unwrap();
        memory.release(handle, page).unwrap();
        memory.free_address(range, 2 * page).unwrap();
        device.malloc(page).unwrap();
        let log = device.take_log();
        let lines = log.iter().map(|call| format!("{call}\n"));
        (device, lines.collect())
    }

    #[test]
    fn every_call_is_repeated() {
        let (original, log) = original();
        let unlogged = Unlogged {
            create_event: 1,
            query_event: 1,
            memory_info: 1,
        };
        let mut device = SimDevice::new(&SimConfig::with_capacity(64 << 20));
        let mut mirror = Mirror::default();
        assert!(!mirror.saw_calls());
        mirror.follow(&mut device, unlogged, &log).unwrap();
        assert!(mirror.saw_calls());
        for kind in CallKind::ALL {
            let (there, here) = (original.counts().of(kind), device.counts().of(kind));
            assert_eq!(there, here, "{}", kind.name());
        }
        assert_eq!(device.used(), original.used());
        // Nothing new.
        mirror.follow(&mut device, unlogged, "").unwrap();
        assert_eq!(device.counts().of(CallKind::MemoryInfo), 1);
    }

    #[test]
    fn memory_is_held_from_its_first_to_its_last_byte() {
        let mut device = SimDevice::new(&SimConfig::default());
        let mut mirror = Mirror::default();
        let (base, page) = (0x200_0000_0000, 2 << 20);
        let mut log = format!("malloc 5 {base:#x}\n");
        let range = base + page;
        log += &format!("reserve {} {range:#x}\n", 3 * page);
        for (number, at) in [(1, range), (2, range + page)] {
            log += &format!("create {page} h{number}\nmap {at:#x} {page} h{number}\n");
        }
        mirror
            .follow(&mut device, Unlogged::default(), &log)
            .unwrap();
        assert!(mirror.holds(base, 5) && mirror.holds(base + 4, 1));
        assert!(!mirror.holds(base, 6) && !mirror.holds(base - 1, 1) && !mirror.holds(7, 1));
        assert!(mirror.holds(range + 1, 2 * page - 1));
        assert!(!mirror.holds(range + 1, 2 * page));
        let log = format!("unmap {range:#x} {page}\nfree {base:#x}\n");
        mirror
            .follow(&mut device, Unlogged::default(), &log)
            .unwrap();
        assert!(!mirror.holds(base, 1) && !mirror.holds(range, 1));
        assert!(mirror.holds(range + page, page));
    }

    #[test]
    fn other_results_are_noticed() {
        let follow = |log: &str, foreign| {
            let mut device = SimDevice::new(&SimConfig::with_capacity(4 << 20));
            device.set_foreign(foreign);
            Mirror::default().follow(&mut device, Unlogged::default(), log)
        };
        assert_eq!(follow("malloc 5 0x20000000000", 0), Ok(()));
        let full = follow("malloc 5 0x20000000000", 4 << 20);
        assert_eq!(full, Err(Differs::Surroundings));
        for log in [
            "malloc 5 0x7",
            "malloc 5 OOM",
            "free 0x7",
            "sing 7",
            "map 1",
        ] {
            assert!(matches!(follow(log, 0), Err(Differs::Broken(_))), "{log}");
        }
    }
}
