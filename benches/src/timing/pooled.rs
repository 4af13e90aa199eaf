//! A simulated device with a pool of its own, as GPUs have, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::driver::work::{Kernel, Work};
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, EventId, MemoryInfo, PoolSettings, PoolUsage, StreamId,
    StreamOrdered, VirtualMemory,
};

/// The pool takes each block from the device, and returns it only if it is trimmed.
pub(super) struct Pooled {
    device: SimDevice,
    /// Time of the calls to the pool.
    ns: u64,
    /// Bytes of the blocks in use, and of those to return.
    used: BTreeMap<DeviceAddr, u64>,
    unused: BTreeMap<DeviceAddr, u64>,
    /// How many kernels were submitted, and how often all work was waited for.
    pub(super) submitted: Arc<AtomicU64>,
    pub(super) waited: Arc<AtomicU64>,
}

impl Pooled {
    pub(super) fn new(device: SimDevice) -> Self {
        Self {
            device,
            ns: 0,
            used: BTreeMap::new(),
            unused: BTreeMap::new(),
            submitted: Arc::default(),
            waited: Arc::default(),
        }
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.device.elapsed_ns() + self.ns
    }

    /// Whether all memory was returned.
    pub(super) fn is_unused(&self) -> bool {
        self.device.used() == 0
    }
}

impl StreamOrdered for Pooled {
    fn pool_malloc(&mut self, bytes: u64, _: StreamId) -> Result<DeviceAddr, DriverError> {
        let addr = self.device.malloc(bytes)?;
        self.used.insert(addr, bytes);
        self.ns += 700 + (bytes >> 20);
        Ok(addr)
    }

    fn pool_free(&mut self, addr: DeviceAddr, bytes: u64, _: StreamId) -> Result<(), DriverError> {
        if self.used.remove(&addr) != Some(bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.unused.insert(addr, bytes);
        self.ns += 300;
        Ok(())
    }

    fn free_stream(&mut self) -> Result<StreamId, DriverError> {
        Ok(StreamId::nth(99))
    }

    fn set_pool(&mut self, _: PoolSettings) -> Result<(), DriverError> {
        self.ns += 50;
        Ok(())
    }

    fn pool_reserved(&mut self) -> Result<u64, DriverError> {
        self.pool_usage().map(|usage| usage.reserved)
    }

    fn pool_usage(&mut self) -> Result<PoolUsage, DriverError> {
        self.ns += 20;
        let used = self.used.values().sum();
        let reserved = used + self.unused.values().sum::<u64>();
        Ok(PoolUsage {
            reserved,
            reserved_peak: reserved,
            used,
            used_peak: used,
        })
    }

    fn reset_pool_peaks(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    fn trim_pool(&mut self, _: u64) -> Result<(), DriverError> {
        for (addr, bytes) in std::mem::take(&mut self.unused) {
            self.device.free(addr, bytes)?;
            self.ns += 90;
        }
        Ok(())
    }
}

impl Driver for Pooled {
    fn total_memory(&self) -> u64 {
        self.device.total_memory()
    }

    fn memory_info(&mut self) -> Result<MemoryInfo, DriverError> {
        self.device.memory_info()
    }

    fn last_error(&mut self) -> Result<(), DriverError> {
        self.device.last_error()
    }

    fn granularity(&self) -> u64 {
        self.device.granularity()
    }

    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError> {
        self.device.malloc(bytes)
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.device.free(addr, bytes)
    }

    fn create_event(&mut self) -> Result<EventId, DriverError> {
        self.device.create_event()
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        self.device.record_event(event, stream)
    }

    fn event_is_complete(&mut self, event: EventId) -> Result<bool, DriverError> {
        self.device.event_is_complete(event)
    }

    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Result<(), DriverError> {
        self.device.wait_event(stream, event)
    }

    fn synchronize_event(&mut self, event: EventId) -> Result<(), DriverError> {
        self.device.synchronize_event(event)
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), DriverError> {
        self.device.synchronize_stream(stream)
    }

    fn synchronize_device(&mut self) -> Result<(), DriverError> {
        self.waited.fetch_add(1, Ordering::Relaxed);
        self.device.synchronize_device()
    }

    fn now_us(&self) -> u64 {
        self.device.now_us()
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        self.device.virtual_memory()
    }

    fn stream_ordered(&mut self) -> Option<&mut dyn StreamOrdered> {
        Some(self)
    }
}

impl Work for Pooled {
    fn submit(&mut self, kernel: Kernel) -> Result<(), DriverError> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.device.submit(kernel)
    }
}
