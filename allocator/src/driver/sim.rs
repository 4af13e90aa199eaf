//! A simulated device.
//!
//! It holds no memory; addresses are plain numbers. It models what an allocator can observe: where
//! allocations are placed, when memory runs out, when events complete. Everything follows from
//! [`SimConfig`] and the calls, so runs are reproducible.
//!
//! - `malloc` charges its size rounded up to 2 MiB, `create` charges its size. With the address policy
//!   `cuda`, small allocations share 2 MiB, as on a GPU. A call that would bring the bytes in use, including
//!   those of other processes, above the capacity fails without effect. Requests of 0 bytes are refused.
//! - `malloc` and `reserve` take addresses from one address space ([`address`]).
//! - Events complete in order per stream, at once or when the caller completes them ([`events`]).
//! - The caller decides which streams are captured into which graph ([`graphs`]).
//! - [`Instruments`] inject failures, charge time for calls, and count and log them.

pub mod address;
pub mod events;
pub mod graphs;
mod memory;
mod shared_pages;
pub mod variables;

use self::address::{AddressPolicy, AddressSpace, Placement};
use self::events::SimStreams;
use self::graphs::Graphs;
use self::memory::Memory;
use self::shared_pages::{SharedPages, is_shared};
use super::hooks::Instruments;
use super::hooks::cost::Costs;
use super::tap::Tap;
use super::work::{Kernel, Work};
use super::{
    DeviceAddr, Driver, DriverError, EventId, GRANULARITY, GraphNode, HandleKind, MemoryHandle,
    MemoryInfo, Status, StreamCapture, StreamId, VirtualMemory,
};

/// A contiguous piece of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhysicalRange {
    /// The handle it belongs to.
    pub handle: MemoryHandle,
    /// Offset in the handle's memory, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// The initial state of a [`SimDevice`].
#[derive(Clone, PartialEq, Debug)]
pub struct SimConfig {
    /// Bytes of memory.
    pub capacity: u64,
    /// Bytes held by other processes.
    pub foreign: u64,
    /// Where allocations and reservations are placed.
    pub addresses: AddressPolicy,
    /// The first address, or the end of the first range if addresses grow downwards, rounded up to a
    /// multiple of 2 MiB above 0. `None` uses the policy's default.
    pub address_base: Option<u64>,
    /// Whether recorded events stay pending until they are completed or waited for.
    pub hold_events: bool,
    /// Whether `free` completes all pending events, as `cudaFree` does in practice.
    pub free_synchronizes: bool,
    /// Whether the device supports virtual memory.
    pub virtual_memory: bool,
    /// The cost of each kind of call.
    pub costs: Costs,
}

impl Default for SimConfig {
    /// 80 GiB, addresses growing upwards, events complete at once, calls cost nothing.
    fn default() -> Self {
        Self {
            capacity: 80 << 30,
            foreign: 0,
            addresses: AddressPolicy::Up,
            address_base: None,
            hold_events: false,
            free_synchronizes: false,
            virtual_memory: true,
            costs: Costs::default(),
        }
    }
}

impl SimConfig {
    /// The default device with this capacity.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self {
            capacity: bytes,
            ..Self::default()
        }
    }
}

/// A simulated device with its instruments. See the [module](self).
pub type SimDevice = Tap<Bare, Instruments>;

/// A simulated device without instruments.
#[derive(Debug)]
pub struct Bare {
    memory: Memory,
    addresses: AddressSpace,
    /// If small allocations share pages.
    shared: Option<SharedPages>,
    streams: SimStreams,
    free_synchronizes: bool,
    virtual_memory: bool,
    capturing: bool,
    graphs: Graphs,
}

impl SimDevice {
    /// Creates an unused device.
    #[must_use]
    pub fn new(config: &SimConfig) -> Self {
        let bare = Bare {
            memory: Memory::new(config.capacity, config.foreign),
            addresses: AddressSpace::new(config.addresses, config.address_base),
            shared: pages_of(config.addresses),
            streams: SimStreams::new(config.hold_events),
            free_synchronizes: config.free_synchronizes,
            virtual_memory: config.virtual_memory,
            capturing: false,
            graphs: Graphs::default(),
        };
        let free = config.capacity.saturating_sub(config.foreign);
        Tap::over(bare, Instruments::new(config.costs.clone(), free))
    }

    /// Changes the capacity. Memory in use stays.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.driver_mut().memory.capacity = bytes;
    }

    /// Changes the bytes held by other processes.
    pub fn set_foreign(&mut self, bytes: u64) {
        self.driver_mut().set_foreign(bytes);
    }

    /// Captures all streams into a graph, or none.
    pub fn set_capturing(&mut self, capturing: bool) {
        self.driver_mut().capturing = capturing;
    }

    /// The graphs that streams are captured into.
    pub fn graphs_mut(&mut self) -> &mut Graphs {
        &mut self.driver_mut().graphs
    }

    /// Places ranges where a recording did, in its order. A range that is not next in the recording is
    /// refused as a failure.
    pub fn follow_recording(&mut self, placements: impl IntoIterator<Item = Placement>) {
        let device = self.driver_mut();
        device.addresses.follow(placements);
        device.shared = None;
    }

    /// Ends a recording: `policy` places new ranges, away from those in use.
    pub fn leave_recording(&mut self, policy: AddressPolicy) {
        let device = self.driver_mut();
        device.addresses.leave_recording(policy);
        device.shared = pages_of(policy);
    }

    /// Returns the number of recorded placements not used yet.
    #[must_use]
    pub fn left_of_recording(&self) -> usize {
        self.driver().addresses.left_of_recording()
    }

    /// Returns the bytes of physical memory in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.driver().memory.used()
    }

    /// Returns the bytes in use that are not mapped.
    #[must_use]
    pub fn unmapped(&self) -> u64 {
        self.driver().memory.unmapped()
    }

    /// Returns the physical memory mapped at `bytes` from `addr`, piece by piece.
    #[must_use]
    pub fn mapped_behind(&self, addr: DeviceAddr, bytes: u64) -> Vec<PhysicalRange> {
        self.driver().memory.mapped_behind(addr, bytes)
    }

    /// Returns the bytes of the live allocation at `addr`, rounded up to the granularity, or to 512 bytes if it
    /// shares a page.
    #[must_use]
    pub fn allocation_at(&self, addr: DeviceAddr) -> Option<u64> {
        let shared = self.driver().shared.as_ref();
        shared
            .and_then(|pages| pages.allocation_at(addr))
            .or_else(|| self.driver().memory.allocation_at(addr))
    }

    /// Returns the start and the bytes of the live allocation that contains an address. Those that share a page have none.
    #[must_use]
    pub fn allocation_around(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        self.driver().memory.allocation_around(addr)
    }

    /// Returns the bytes of a handle that was not released.
    #[must_use]
    pub fn memory_of(&self, handle: MemoryHandle) -> Option<u64> {
        self.driver().memory.memory_of(handle)
    }

    /// Returns the bytes of reserved address space.
    #[must_use]
    pub fn reserved_addresses(&self) -> u64 {
        self.driver().memory.reserved_addresses()
    }

    /// The streams and events.
    #[must_use]
    pub fn streams(&self) -> &SimStreams {
        &self.driver().streams
    }

    /// The streams and events, mutable.
    pub fn streams_mut(&mut self) -> &mut SimStreams {
        self.driver_mut().streams_mut()
    }
}

impl Bare {
    /// Changes the bytes held by other processes.
    pub fn set_foreign(&mut self, bytes: u64) {
        self.memory.foreign = bytes;
    }

    /// Limits the bytes that this process may use, besides those of other processes. Memory in use stays.
    pub fn set_limit(&mut self, bytes: Option<u64>) {
        self.memory.limit = bytes.unwrap_or(u64::MAX);
    }

    /// The streams and events, mutable.
    pub fn streams_mut(&mut self) -> &mut SimStreams {
        &mut self.streams
    }

    /// An allocation of whole pages.
    fn malloc_pages(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let rounded = round_up(bytes)?;
        self.memory.ensure_free(rounded)?;
        let addr = self.addresses.place(rounded)?;
        self.memory.add_allocation(addr, rounded);
        Ok(addr)
    }

    fn free_pages(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let rounded = round_up(bytes)?;
        self.memory.remove_allocation(addr, rounded)?;
        self.addresses.free(addr, rounded);
        Ok(())
    }
}

/// The pages that small allocations share under this policy, none yet.
fn pages_of(policy: AddressPolicy) -> Option<SharedPages> {
    (policy == AddressPolicy::Cuda).then(SharedPages::default)
}

impl Driver for Bare {
    fn total_memory(&self) -> u64 {
        self.memory.capacity
    }

    fn memory_info(&mut self) -> Status<MemoryInfo> {
        Ok(self.memory.info())
    }

    fn last_error(&mut self) -> Status {
        Ok(())
    }

    fn granularity(&self) -> u64 {
        GRANULARITY
    }

    fn malloc(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let Some(pages) = self.shared.as_mut().filter(|_| is_shared(bytes)) else {
            return self.malloc_pages(bytes);
        };
        if let Some(addr) = pages.take(bytes) {
            return Ok(addr);
        }
        let page = self.malloc_pages(GRANULARITY)?;
        let placed = self.shared.as_mut().and_then(|pages| {
            pages.add_page(page);
            pages.take(bytes)
        });
        placed.ok_or(DriverError::OutOfMemory)
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        match self.shared.as_mut().filter(|_| is_shared(bytes)) {
            Some(pages) => {
                if let Some(page) = pages.give(addr, bytes)? {
                    self.free_pages(page, GRANULARITY)?;
                }
            }
            None => self.free_pages(addr, bytes)?,
        }
        if self.free_synchronizes {
            self.streams.complete_all();
        }
        Ok(())
    }

    fn create_event(&mut self) -> Status<EventId> {
        self.streams.create()
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Status {
        self.streams.record(event, stream)
    }

    fn event_is_complete(&mut self, event: EventId) -> Status<bool> {
        self.streams.is_complete(event)
    }

    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Status {
        self.streams.wait(stream, event)
    }

    fn synchronize_event(&mut self, event: EventId) -> Status {
        self.streams.complete_through(event)
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Status {
        self.streams.drain(stream);
        Ok(())
    }

    fn synchronize_device(&mut self) -> Status {
        self.streams.complete_all();
        Ok(())
    }

    fn is_capturing(&self) -> bool {
        self.capturing
    }

    fn capture_of(&mut self, stream: StreamId) -> Status<Option<StreamCapture>> {
        Ok(self.graphs.capture_of(stream))
    }

    fn dependencies(&mut self, node: GraphNode) -> Status<Vec<GraphNode>> {
        self.graphs.dependencies(node)
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        self.virtual_memory
            .then_some(self as &mut dyn VirtualMemory)
    }
}

impl Work for Bare {
    fn submit(&mut self, kernel: Kernel) -> Status {
        self.streams.submit(kernel);
        Ok(())
    }
}

impl VirtualMemory for Bare {
    fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let rounded = round_up(bytes)?;
        let addr = self.addresses.reserve(rounded)?;
        self.memory.add_reservation(addr, rounded);
        Ok(addr)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let rounded = round_up(bytes)?;
        self.memory.remove_reservation(addr, rounded)?;
        self.addresses.free(addr, rounded);
        Ok(())
    }

    fn create(&mut self, bytes: u64, _: HandleKind) -> Status<MemoryHandle> {
        self.memory.create(bytes)
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        self.memory.release(handle, bytes)
    }

    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        self.memory.map(addr, bytes, handle)
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.memory.ensure_mapped(addr, bytes)
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.memory.unmap(addr, bytes)
    }
}

/// Rounds `bytes`, which must not be 0, up to the granularity.
fn round_up(bytes: u64) -> Status<u64> {
    if bytes == 0 {
        return Err(DriverError::InvalidValue);
    }
    let rounded = bytes.checked_next_multiple_of(GRANULARITY);
    rounded.ok_or(DriverError::OutOfMemory)
}
