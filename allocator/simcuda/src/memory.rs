//! Device memory: whole allocations, and virtual memory.

use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, HandleKind, MemoryHandle, StreamId, VirtualMemory,
};

use crate::context;
use crate::errors::{Code, Outcome};
use crate::ipc::FABRIC;
use crate::state::Sim;

/// A handle has, from the high bits to the low ones, how other processes may get its memory, the ordinal of its
/// device and the device's own number.
const TYPES_SHIFT: u32 = 56;
const ORDINAL_SHIFT: u32 = 48;

impl Sim {
    pub(crate) fn malloc(&mut self, ordinal: u32, bytes: u64) -> Outcome<u64> {
        self.captures.ensure_safe_call()?;
        let addr = self.on(ordinal, |device| device.malloc(bytes))?;
        Ok(addr.0)
    }

    /// Frees device memory. The device first finishes the work on it.
    pub(crate) fn free(&mut self, addr: u64) -> Outcome {
        self.captures.ensure_safe_call()?;
        let ordinal = self.settings.ordinal_of(addr);
        self.finish_work(ordinal)?;
        if self.pools.holds(addr) {
            return self.free_in_pool(addr, StreamId::DEFAULT);
        }
        self.on(ordinal, |device| {
            let addr = DeviceAddr(addr);
            // 0 bytes for an unknown address: the device refuses the call, counts it and logs it.
            let bytes = device.allocation_at(addr).unwrap_or(0);
            device.free(addr, bytes)
        })
    }

    /// Returns free and total bytes.
    pub(crate) fn memory_info(&mut self, ordinal: u32) -> Outcome<(u64, u64)> {
        let info = self.on(ordinal, Driver::memory_info)?;
        Ok((info.free, info.total))
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Outcome<u64> {
        let ordinal = context::current().unwrap_or(0);
        let addr = self.on(ordinal, |device| virtual_memory(device)?.reserve(bytes))?;
        Ok(addr.0)
    }

    pub(crate) fn free_address(&mut self, addr: u64, bytes: u64) -> Outcome {
        let ordinal = self.settings.ordinal_of(addr);
        self.on(ordinal, |device| {
            virtual_memory(device)?.free_address(DeviceAddr(addr), bytes)
        })
    }

    /// Creates memory that other processes may get in the ways `types`, as bits.
    pub(crate) fn create(&mut self, ordinal: u32, bytes: u64, types: u8) -> Outcome<u64> {
        if types & FABRIC != 0 && !self.settings.fabric {
            return Err(Code::NOT_SUPPORTED);
        }
        // The device does not distinguish the kinds.
        let kind = HandleKind::FileDescriptor;
        let handle = self.on(ordinal, |device| {
            virtual_memory(device)?.create(bytes, kind)
        })?;
        Ok(u64::from(types) << TYPES_SHIFT | u64::from(ordinal) << ORDINAL_SHIFT | handle.0)
    }

    /// The ordinal of the device and the bytes of a handle whose memory other processes may get in the way `kind`.
    pub(crate) fn shareable_memory(&mut self, handle: u64, kind: u8) -> Outcome<(u32, u64)> {
        if handle >> TYPES_SHIFT & u64::from(kind) == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (ordinal, handle) = split_handle(handle);
        let bytes = self.device(ordinal)?.sim.memory_of(handle);
        Ok((ordinal, bytes.ok_or(Code::INVALID_VALUE)?))
    }

    pub(crate) fn release(&mut self, handle: u64) -> Outcome {
        let (ordinal, handle) = split_handle(handle);
        self.on(ordinal, |device| {
            let bytes = device.memory_of(handle).unwrap_or(0);
            virtual_memory(device)?.release(handle, bytes)
        })
    }

    /// Maps memory to addresses. Those of another device than its own take nothing there.
    pub(crate) fn map(&mut self, addr: u64, bytes: u64, offset: u64, handle: u64) -> Outcome {
        let (ordinal, handle) = split_handle(handle);
        if offset != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if ordinal != self.settings.ordinal_of(addr) {
            self.peer_mappings.insert(addr, bytes);
            return Ok(());
        }
        self.on(ordinal, |device| {
            virtual_memory(device)?.map(DeviceAddr(addr), bytes, handle)
        })
    }

    pub(crate) fn set_access(&mut self, addr: u64, bytes: u64) -> Outcome {
        if self.peer_mappings.get(&addr) == Some(&bytes) {
            return Ok(());
        }
        let ordinal = self.settings.ordinal_of(addr);
        self.on(ordinal, |device| {
            virtual_memory(device)?.set_access(DeviceAddr(addr), bytes)
        })
    }

    /// Removes one mapping or several adjacent ones.
    pub(crate) fn unmap(&mut self, addr: u64, bytes: u64) -> Outcome {
        if self.peer_mappings.get(&addr) == Some(&bytes) {
            self.peer_mappings.remove(&addr);
            return Ok(());
        }
        let ordinal = self.settings.ordinal_of(addr);
        let addr = DeviceAddr(addr);
        self.on(ordinal, |device| {
            if virtual_memory(device)?.unmap(addr, bytes) == Ok(()) {
                return Ok(());
            }
            let pieces = whole_mappings(device, addr, bytes)?;
            let memory = virtual_memory(device)?;
            let mut at = addr;
            for bytes in pieces {
                memory.unmap(at, bytes)?;
                at = at.offset(bytes);
            }
            Ok(())
        })
    }
}

/// The sizes of the adjacent mappings that exactly fill a range. A mapping starts at the beginning of
/// its handle, so a partial one starts inside its handle, or the rest of it does.
fn whole_mappings(
    device: &SimDevice,
    addr: DeviceAddr,
    bytes: u64,
) -> Result<Vec<u64>, DriverError> {
    let inside = device.mapped_behind(addr, bytes);
    let after = device.mapped_behind(addr.offset(bytes), 1);
    let are_whole = inside.iter().chain(&after).all(|piece| piece.offset == 0);
    let mapped: u64 = inside.iter().map(|piece| piece.bytes).sum();
    if bytes == 0 || mapped != bytes || !are_whole {
        return Err(DriverError::InvalidValue);
    }
    Ok(inside.into_iter().map(|piece| piece.bytes).collect())
}

/// The device's interface for virtual memory, if it has one.
fn virtual_memory(device: &mut SimDevice) -> Result<&mut dyn VirtualMemory, DriverError> {
    device.virtual_memory().ok_or(DriverError::NotSupported)
}

fn split_handle(handle: u64) -> (u32, MemoryHandle) {
    let ordinal = (handle >> ORDINAL_SHIFT) as u8;
    let number = handle & ((1 << ORDINAL_SHIFT) - 1);
    (ordinal.into(), MemoryHandle(number))
}
