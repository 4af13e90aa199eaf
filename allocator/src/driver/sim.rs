//! A simulated device: the embedded default of everything that needs one.
//!
//! It holds no memory; addresses are only numbers. What it decides is what an allocator can see of
//! a device: where allocations are placed, when memory is exhausted, when events complete. All of
//! it follows from [`SimConfig`] and from the calls, so a run can be repeated exactly.
//!
//! - `malloc` charges its size rounded up to 2 MiB, `create` charges its size; a call that would
//!   bring the bytes in use, those of other processes included, above the capacity fails and
//!   changes nothing. Nothing of 0 bytes is given out.
//! - One address counter serves `malloc` and `reserve` ([`address`]).
//! - Events complete in order per stream, at once or when the caller says so ([`events`]).
//! - Failures can be injected ([`faults`]), and each call can cost time ([`cost`]).
//! - What was called is counted, and written down if asked for ([`calls`]).

pub mod address;
pub mod calls;
pub mod cost;
pub mod events;
pub mod faults;
mod memory;

use self::address::{AddressPolicy, AddressSpace, Placement};
use self::calls::{Call, CallCounts, CallKind, CallLog};
use self::cost::{Clock, Costs};
use self::events::Streams;
use self::faults::Faults;
use self::memory::Memory;
use super::{
    DeviceAddr, Driver, DriverError, EventId, HandleKind, MemoryHandle, MemoryInfo, StreamId,
    VirtualMemory,
};

/// What `malloc` and `reserve` round up to, and what `create` and `map` must be multiples of:
/// 2 MiB, the granularity CUDA reports for device memory.
pub const GRANULARITY: u64 = 2 << 20;

/// How a [`SimDevice`] begins.
#[derive(Clone, PartialEq, Debug)]
pub struct SimConfig {
    /// Bytes of memory.
    pub capacity: u64,
    /// Bytes of them that other processes hold.
    pub foreign: u64,
    /// Where allocations and reservations are placed.
    pub address_policy: AddressPolicy,
    /// The first address, or the end of the first range if addresses grow downwards; raised to the
    /// next multiple of 2 MiB above 0. `None`: the policy's own.
    pub address_base: Option<u64>,
    /// Whether recorded events stay pending until completed or waited for.
    pub hold_events: bool,
    /// Whether `free` completes all pending events, as `cudaFree` in effect does.
    pub free_synchronizes: bool,
    /// What each call costs.
    pub costs: Costs,
}

impl Default for SimConfig {
    /// 80 GiB, addresses growing upwards, events complete at once, calls free of charge.
    fn default() -> Self {
        Self {
            capacity: 80 << 30,
            foreign: 0,
            address_policy: AddressPolicy::Up,
            address_base: None,
            hold_events: false,
            free_synchronizes: false,
            costs: Costs::default(),
        }
    }
}

impl SimConfig {
    /// The default device with another capacity.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self {
            capacity: bytes,
            ..Self::default()
        }
    }
}

/// A simulated device. See the [module](self).
#[derive(Debug)]
pub struct SimDevice {
    memory: Memory,
    addresses: AddressSpace,
    streams: Streams,
    faults: Faults,
    clock: Clock,
    counts: CallCounts,
    log: Option<CallLog>,
    free_synchronizes: bool,
}

impl SimDevice {
    /// A device on which nothing has been done yet.
    #[must_use]
    pub fn new(config: &SimConfig) -> Self {
        Self {
            memory: Memory::new(config.capacity, config.foreign),
            addresses: AddressSpace::new(config.address_policy, config.address_base),
            streams: Streams::new(config.hold_events),
            faults: Faults::default(),
            clock: Clock::new(config.costs.clone()),
            counts: CallCounts::default(),
            log: None,
            free_synchronizes: config.free_synchronizes,
        }
    }

    /// Changes the capacity; what is in use stays.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.memory.capacity = bytes;
    }

    /// Changes the bytes that other processes hold.
    pub fn set_foreign(&mut self, bytes: u64) {
        self.memory.foreign = bytes;
    }

    /// Places ranges where a recording says from now on, in its order; a range that it does not
    /// have next is refused as a failure.
    pub fn follow_recording(&mut self, placements: impl IntoIterator<Item = Placement>) {
        self.addresses.follow(placements);
    }

    /// Placements of the recording that nobody has asked for yet.
    #[must_use]
    pub fn left_of_recording(&self) -> usize {
        self.addresses.left_of_recording()
    }

    /// Bytes of physical memory in use through this device.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.memory.used()
    }

    /// Bytes of address space reserved through this device.
    #[must_use]
    pub fn reserved_addresses(&self) -> u64 {
        self.memory.reserved_addresses()
    }

    /// The streams and events.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The streams and events, to complete or hold them.
    pub fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// The failures to come.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// How often each call was made, failed ones included.
    #[must_use]
    pub fn counts(&self) -> &CallCounts {
        &self.counts
    }

    /// Nanoseconds that all calls so far have cost.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.clock.elapsed_ns()
    }

    /// Starts or stops writing down the calls that change something.
    pub fn set_logging(&mut self, on: bool) {
        self.log = on.then(CallLog::default);
    }

    /// Takes what was written down since the last time.
    pub fn take_log(&mut self) -> Vec<Call> {
        self.log.as_mut().map(CallLog::take).unwrap_or_default()
    }

    /// Waits for all streams, as a program does with `cudaDeviceSynchronize`.
    pub fn synchronize_device(&mut self) {
        self.counts.add(CallKind::SynchronizeDevice);
        self.clock.charge(CallKind::SynchronizeDevice, 0);
        self.streams.complete_all();
        self.write_down(Call::SynchronizeDevice);
    }

    /// Counts and charges a call about no memory in particular; fails it if a failure is due.
    fn enter(&mut self, kind: CallKind) -> Result<(), DriverError> {
        self.enter_with(kind, 0)
    }

    /// The same for a call about `bytes`.
    fn enter_with(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        self.counts.add(kind);
        self.clock.charge(kind, bytes);
        self.faults.strike(kind)
    }

    fn write_down(&mut self, call: Call) {
        if let Some(log) = &mut self.log {
            log.push(call);
        }
    }
}

impl Driver for SimDevice {
    fn total_memory(&self) -> u64 {
        self.memory.capacity
    }

    fn memory_info(&mut self) -> Result<MemoryInfo, DriverError> {
        self.enter(CallKind::MemoryInfo)?;
        Ok(self.memory.info())
    }

    fn last_error(&mut self) -> Result<(), DriverError> {
        self.faults.sticky()
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError> {
        let placed = self.enter_with(CallKind::Malloc, bytes).and_then(|()| {
            let rounded = round_up(bytes)?;
            self.memory.ensure_free(rounded)?;
            let addr = self.addresses.place(rounded)?;
            self.memory.add_allocation(addr, rounded);
            Ok(addr)
        });
        match placed {
            Ok(addr) => self.write_down(Call::Malloc { bytes, addr }),
            Err(DriverError::OutOfMemory) => self.write_down(Call::MallocRefused { bytes }),
            Err(_) => {}
        }
        placed
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), DriverError> {
        let bytes = self.memory.allocation_bytes(addr);
        self.enter_with(CallKind::Free, bytes)?;
        let Some(bytes) = self.memory.remove_allocation(addr) else {
            self.write_down(Call::FreeInvalid { addr });
            return Err(DriverError::InvalidValue);
        };
        self.addresses.give_back(addr, bytes);
        if self.free_synchronizes {
            self.streams.complete_all();
        }
        self.write_down(Call::Free { addr });
        Ok(())
    }

    fn create_event(&mut self) -> Result<EventId, DriverError> {
        self.enter(CallKind::CreateEvent)?;
        self.streams.create()
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        self.enter(CallKind::RecordEvent)?;
        self.streams.record(event, stream)?;
        self.write_down(Call::RecordEvent { stream });
        Ok(())
    }

    fn event_is_complete(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.enter(CallKind::QueryEvent)?;
        self.streams.is_complete(event)
    }

    fn synchronize_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.enter(CallKind::SynchronizeEvent)?;
        if let Some(stream) = self.streams.complete_through(event)? {
            self.write_down(Call::SynchronizeEvent { stream });
        }
        Ok(())
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.enter(CallKind::SynchronizeStream)?;
        self.streams.complete(stream, u64::MAX);
        self.write_down(Call::SynchronizeStream { stream });
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.clock.elapsed_ns() / 1000
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        Some(self)
    }
}

impl VirtualMemory for SimDevice {
    fn reserve(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError> {
        self.enter_with(CallKind::Reserve, bytes)?;
        let rounded = round_up(bytes)?;
        let addr = self.addresses.place(rounded)?;
        self.memory.add_reservation(addr, rounded);
        self.write_down(Call::Reserve { bytes, addr });
        Ok(addr)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.enter_with(CallKind::FreeAddress, bytes)?;
        let rounded = round_up(bytes)?;
        self.memory.remove_reservation(addr, rounded)?;
        self.addresses.give_back(addr, rounded);
        self.write_down(Call::FreeAddress { addr, bytes });
        Ok(())
    }

    fn create(&mut self, bytes: u64, _: HandleKind) -> Result<MemoryHandle, DriverError> {
        let created = self
            .enter_with(CallKind::Create, bytes)
            .and_then(|()| self.memory.create(bytes));
        match created {
            Ok(handle) => self.write_down(Call::Create { bytes, handle }),
            Err(DriverError::OutOfMemory) => self.write_down(Call::CreateRefused { bytes }),
            Err(_) => {}
        }
        created
    }

    fn release(&mut self, handle: MemoryHandle) -> Result<(), DriverError> {
        let bytes = self.memory.handle_bytes(handle);
        self.enter_with(CallKind::Release, bytes)?;
        self.memory.release(handle)?;
        self.write_down(Call::Release { handle });
        Ok(())
    }

    fn map(
        &mut self,
        addr: DeviceAddr,
        bytes: u64,
        handle: MemoryHandle,
    ) -> Result<(), DriverError> {
        self.enter_with(CallKind::Map, bytes)?;
        self.memory.map(addr, bytes, handle)?;
        self.write_down(Call::Map {
            addr,
            bytes,
            handle,
        });
        Ok(())
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.enter_with(CallKind::SetAccess, bytes)?;
        self.memory.ensure_mapped(addr, bytes)?;
        self.write_down(Call::SetAccess { addr, bytes });
        Ok(())
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.enter_with(CallKind::Unmap, bytes)?;
        self.memory.unmap(addr, bytes)?;
        self.write_down(Call::Unmap { addr, bytes });
        Ok(())
    }
}

/// `bytes`, more than 0, rounded up to the granularity.
fn round_up(bytes: u64) -> Result<u64, DriverError> {
    if bytes == 0 {
        return Err(DriverError::InvalidValue);
    }
    let rounded = bytes.checked_next_multiple_of(GRANULARITY);
    rounded.ok_or(DriverError::OutOfMemory)
}
