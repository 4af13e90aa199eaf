//! A driver adaptor that shows every call to a hook.
//!
//! A [`Hook`] counts, times, logs, limits or fails driver calls, and works with every driver. A pair of
//! hooks is a hook.

use super::calls::{Call, CallKind};
use super::work::{Kernel, Work};
use super::{
    DetachedMalloc, DeviceAddr, Driver, DriverError, EventId, GraphNode, HandleKind, MemoryHandle,
    MemoryInfo, PoolSettings, PoolUsage, SharedHandle, Status, StreamCapture, StreamId,
    StreamOrdered, VirtualMemory,
};

/// Code that runs at each driver call. By default it does nothing.
pub trait Hook: Send {
    /// Runs before a call for `bytes`, which is 0 for calls without a size.
    ///
    /// # Errors
    /// The error to fail the call with. The call is then not made.
    fn before(&mut self, _kind: CallKind, _bytes: u64) -> Status {
        Ok(())
    }

    /// Sets whether calls are charged; see [`Driver::charge_calls`].
    fn charge_calls(&mut self, _on: bool) {}

    /// Runs when a call that [`Hook::before`] allowed has returned, with or without success.
    fn over(&mut self, _kind: CallKind) {}

    /// Runs after a call that succeeded or was refused in a way that [`Call`] names.
    fn after(&mut self, _call: &Call) {}

    /// Runs when a kernel is submitted.
    fn submit(&mut self, _kernel: Kernel) {}

    /// Returns how many more bytes the hook allows to be taken from the device.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// Reports an error that the hook left behind.
    ///
    /// # Errors
    /// That error.
    fn last_error(&self) -> Status {
        Ok(())
    }

    /// Returns the nanoseconds the hook adds to the driver's clock.
    fn elapsed_ns(&self) -> u64 {
        0
    }
}

/// The second hook is closer to the driver: it runs last before a call, and first when the call returns.
impl<A: Hook, B: Hook> Hook for (A, B) {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Status {
        self.0.before(kind, bytes)?;
        self.1.before(kind, bytes)
    }

    fn charge_calls(&mut self, on: bool) {
        self.0.charge_calls(on);
        self.1.charge_calls(on);
    }

    fn over(&mut self, kind: CallKind) {
        self.1.over(kind);
        self.0.over(kind);
    }

    fn after(&mut self, call: &Call) {
        self.0.after(call);
        self.1.after(call);
    }

    fn submit(&mut self, kernel: Kernel) {
        self.0.submit(kernel);
        self.1.submit(kernel);
    }

    fn room(&self) -> u64 {
        self.0.room().min(self.1.room())
    }

    fn last_error(&self) -> Status {
        self.0.last_error()?;
        self.1.last_error()
    }

    fn elapsed_ns(&self) -> u64 {
        self.0.elapsed_ns().saturating_add(self.1.elapsed_ns())
    }
}

/// A driver with a hook on its calls.
#[derive(Debug)]
pub struct Tap<D, H> {
    driver: D,
    hook: H,
    /// The stream each event was last recorded on, by the number of the event.
    recorded: Vec<Option<StreamId>>,
}

impl<D, H> Tap<D, H> {
    /// Shows all calls to `driver` to `hook`.
    #[must_use]
    pub fn over(driver: D, hook: H) -> Self {
        Self {
            driver,
            hook,
            recorded: Vec::new(),
        }
    }

    /// The driver below.
    #[must_use]
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver below, for calls that bypass the hook.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The hook.
    #[must_use]
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// The hook, mutable.
    pub fn hook_mut(&mut self) -> &mut H {
        &mut self.hook
    }
}

impl<D: Driver, H: Hook> Tap<D, H> {
    /// Makes a call for `bytes` if the hook allows it.
    fn pass<T>(
        &mut self,
        kind: CallKind,
        bytes: u64,
        call: impl FnOnce(&mut D) -> Status<T>,
    ) -> Status<T> {
        self.hook.before(kind, bytes)?;
        let answer = call(&mut self.driver);
        self.hook.over(kind);
        answer
    }

    fn show_malloc(&mut self, bytes: u64, placed: &Status<DeviceAddr>) {
        match placed {
            &Ok(addr) => self.hook.after(&Call::Malloc { bytes, addr }),
            Err(DriverError::OutOfMemory) => self.hook.after(&Call::MallocRefused { bytes }),
            Err(_) => {}
        }
    }

    /// Like [`Self::pass`], for a virtual memory call.
    fn pass_to_memory<T>(
        &mut self,
        kind: CallKind,
        bytes: u64,
        call: impl FnOnce(&mut dyn VirtualMemory) -> Status<T>,
    ) -> Status<T> {
        self.pass(kind, bytes, |driver| {
            call(driver.virtual_memory().ok_or(DriverError::NotSupported)?)
        })
    }

    /// Like [`Self::pass`], for a call to the device's pool.
    fn pass_to_pool<T>(
        &mut self,
        kind: CallKind,
        bytes: u64,
        call: impl FnOnce(&mut dyn StreamOrdered) -> Status<T>,
    ) -> Status<T> {
        self.pass(kind, bytes, |driver| {
            call(driver.stream_ordered().ok_or(DriverError::NotSupported)?)
        })
    }
}

impl<D: Driver, H: Hook> Driver for Tap<D, H> {
    fn total_memory(&self) -> u64 {
        self.driver.total_memory()
    }

    /// Of the free memory, only what the hook allows to be taken counts as free.
    fn memory_info(&mut self) -> Status<MemoryInfo> {
        let info = self.pass(CallKind::MemoryInfo, 0, Driver::memory_info)?;
        let free = info.free.min(self.hook.room());
        Ok(MemoryInfo { free, ..info })
    }

    fn last_error(&mut self) -> Status {
        self.hook.last_error()?;
        self.driver.last_error()
    }

    fn granularity(&self) -> u64 {
        self.driver.granularity()
    }

    fn malloc(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let placed = self.pass(CallKind::Malloc, bytes, |driver| driver.malloc(bytes));
        self.show_malloc(bytes, &placed);
        placed
    }

    fn detached_malloc(&mut self, bytes: u64) -> Status<Option<DetachedMalloc>> {
        let call = self.driver.detached_malloc(bytes)?;
        if call.is_some() {
            self.hook.before(CallKind::Malloc, bytes)?;
        }
        Ok(call)
    }

    fn end_malloc(&mut self, bytes: u64, answer: Status<DeviceAddr>) -> Status<DeviceAddr> {
        let placed = self.driver.end_malloc(bytes, answer);
        self.hook.over(CallKind::Malloc);
        self.show_malloc(bytes, &placed);
        placed
    }

    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let freed = self.pass(CallKind::Free, bytes, |driver| driver.free(addr, bytes));
        match freed {
            Ok(()) => self.hook.after(&Call::Free { addr, bytes }),
            Err(DriverError::InvalidValue) => self.hook.after(&Call::FreeInvalid { addr }),
            Err(_) => {}
        }
        freed
    }

    fn create_event(&mut self) -> Status<EventId> {
        self.pass(CallKind::CreateEvent, 0, Driver::create_event)
    }

    fn record_event(&mut self, event: EventId, stream: StreamId) -> Status {
        self.pass(CallKind::RecordEvent, 0, |driver| {
            driver.record_event(event, stream)
        })?;
        let number = event.0 as usize;
        if number >= self.recorded.len() {
            self.recorded.resize(number + 1, None);
        }
        self.recorded[number] = Some(stream);
        self.hook.after(&Call::RecordEvent { stream });
        Ok(())
    }

    fn event_is_complete(&mut self, event: EventId) -> Status<bool> {
        self.pass(CallKind::QueryEvent, 0, |driver| {
            driver.event_is_complete(event)
        })
    }

    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Status {
        self.pass(CallKind::WaitEvent, 0, |driver| {
            driver.wait_event(stream, event)
        })?;
        self.hook.after(&Call::WaitEvent { stream });
        Ok(())
    }

    fn synchronize_event(&mut self, event: EventId) -> Status {
        self.pass(CallKind::SynchronizeEvent, 0, |driver| {
            driver.synchronize_event(event)
        })?;
        if let Some(&Some(stream)) = self.recorded.get(event.0 as usize) {
            self.hook.after(&Call::SynchronizeEvent { stream });
        }
        Ok(())
    }

    fn synchronize_stream(&mut self, stream: StreamId) -> Status {
        self.pass(CallKind::SynchronizeStream, 0, |driver| {
            driver.synchronize_stream(stream)
        })?;
        self.hook.after(&Call::SynchronizeStream { stream });
        Ok(())
    }

    fn synchronize_device(&mut self) -> Status {
        self.pass(CallKind::SynchronizeDevice, 0, Driver::synchronize_device)?;
        self.hook.after(&Call::SynchronizeDevice);
        Ok(())
    }

    fn capture_of(&mut self, stream: StreamId) -> Status<Option<StreamCapture>> {
        self.driver.capture_of(stream)
    }

    fn dependencies(&mut self, node: GraphNode) -> Status<Vec<GraphNode>> {
        self.driver.dependencies(node)
    }

    fn is_capturing(&self) -> bool {
        self.driver.is_capturing()
    }

    fn open_to_peer(&mut self, peer: u32) -> Status {
        self.driver.open_to_peer(peer)
    }

    fn now_us(&self) -> u64 {
        let in_hook = self.hook.elapsed_ns() / 1000;
        self.driver.now_us().saturating_add(in_hook)
    }

    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory> {
        self.driver.virtual_memory()?;
        Some(self)
    }

    fn account(&mut self, kind: CallKind, bytes: u64) -> Status {
        self.pass(kind, bytes, |driver| driver.account(kind, bytes))
    }

    fn charge_calls(&mut self, on: bool) {
        self.driver.charge_calls(on);
        self.hook.charge_calls(on);
    }

    fn stream_ordered(&mut self) -> Option<&mut dyn StreamOrdered> {
        self.driver.stream_ordered()?;
        Some(self)
    }
}

impl<D: Driver, H: Hook> VirtualMemory for Tap<D, H> {
    fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr> {
        let addr = self.pass_to_memory(CallKind::Reserve, bytes, |memory| memory.reserve(bytes))?;
        self.hook.after(&Call::Reserve { bytes, addr });
        Ok(addr)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.pass_to_memory(CallKind::FreeAddress, bytes, |memory| {
            memory.free_address(addr, bytes)
        })?;
        self.hook.after(&Call::FreeAddress { addr, bytes });
        Ok(())
    }

    fn create(&mut self, bytes: u64, kind: HandleKind) -> Status<MemoryHandle> {
        let created =
            self.pass_to_memory(CallKind::Create, bytes, |memory| memory.create(bytes, kind));
        match created {
            Ok(handle) => self.hook.after(&Call::Create { bytes, handle }),
            Err(DriverError::OutOfMemory) => self.hook.after(&Call::CreateRefused { bytes }),
            Err(_) => {}
        }
        created
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        self.pass_to_memory(CallKind::Release, bytes, |memory| {
            memory.release(handle, bytes)
        })?;
        self.hook.after(&Call::Release { handle });
        Ok(())
    }

    /// Bypasses the hook: the memory stays that of this process.
    fn export(&mut self, handle: MemoryHandle, kind: HandleKind) -> Status<SharedHandle> {
        let memory = self.driver.virtual_memory();
        memory
            .ok_or(DriverError::NotSupported)?
            .export(handle, kind)
    }

    /// Bypasses the hook: the memory is that of another process.
    fn import(&mut self, bytes: u64, shared: SharedHandle) -> Status<MemoryHandle> {
        let memory = self.driver.virtual_memory();
        memory
            .ok_or(DriverError::NotSupported)?
            .import(bytes, shared)
    }

    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        self.pass_to_memory(CallKind::Map, bytes, |memory| {
            memory.map(addr, bytes, handle)
        })?;
        self.hook.after(&Call::Map {
            addr,
            bytes,
            handle,
        });
        Ok(())
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.pass_to_memory(CallKind::SetAccess, bytes, |memory| {
            memory.set_access(addr, bytes)
        })?;
        self.hook.after(&Call::SetAccess { addr, bytes });
        Ok(())
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        self.pass_to_memory(CallKind::Unmap, bytes, |memory| memory.unmap(addr, bytes))?;
        self.hook.after(&Call::Unmap { addr, bytes });
        Ok(())
    }
}

impl<D: Driver, H: Hook> StreamOrdered for Tap<D, H> {
    fn pool_malloc(&mut self, bytes: u64, stream: StreamId) -> Status<DeviceAddr> {
        let placed = self.pass_to_pool(CallKind::PoolMalloc, bytes, |pool| {
            pool.pool_malloc(bytes, stream)
        });
        match placed {
            Ok(addr) => self.hook.after(&Call::PoolMalloc {
                bytes,
                addr,
                stream,
            }),
            Err(DriverError::OutOfMemory) => self.hook.after(&Call::PoolMallocRefused { bytes }),
            Err(_) => {}
        }
        placed
    }

    fn pool_free(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status {
        self.pass_to_pool(CallKind::PoolFree, bytes, |pool| {
            pool.pool_free(addr, bytes, stream)
        })?;
        self.hook.after(&Call::PoolFree { addr, stream });
        Ok(())
    }

    /// Bypasses the hook: only the first call reaches the device.
    fn free_stream(&mut self) -> Status<StreamId> {
        let pool = self.driver.stream_ordered();
        pool.ok_or(DriverError::NotSupported)?.free_stream()
    }

    fn set_pool(&mut self, settings: PoolSettings) -> Status {
        self.pass_to_pool(CallKind::SetPool, 0, |pool| pool.set_pool(settings))
    }

    fn pool_reserved(&mut self) -> Status<u64> {
        let bytes = self.pass_to_pool(CallKind::PoolUsage, 0, |pool| pool.pool_reserved())?;
        self.hook.after(&Call::PoolReserved { bytes });
        Ok(bytes)
    }

    fn pool_usage(&mut self) -> Status<PoolUsage> {
        let usage = self.pass_to_pool(CallKind::PoolUsage, 0, |pool| pool.pool_usage())?;
        let bytes = usage.reserved;
        self.hook.after(&Call::PoolReserved { bytes });
        Ok(usage)
    }

    fn reset_pool_peaks(&mut self) -> Status {
        self.pass_to_pool(CallKind::SetPool, 0, |pool| pool.reset_pool_peaks())
    }

    fn trim_pool(&mut self, keep: u64) -> Status {
        self.pass_to_pool(CallKind::TrimPool, 0, |pool| pool.trim_pool(keep))?;
        self.hook.after(&Call::TrimPool { keep });
        Ok(())
    }
}

impl<D: Work, H: Hook> Work for Tap<D, H> {
    fn submit(&mut self, kernel: Kernel) -> Status {
        let delayed = kernel.submitted_ns.saturating_add(self.hook.elapsed_ns());
        self.hook.submit(kernel);
        self.driver.submit(Kernel {
            submitted_ns: delayed,
            ..kernel
        })
    }
}
