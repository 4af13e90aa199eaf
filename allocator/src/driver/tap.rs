//! A driver adaptor that shows every call to a hook.
//!
//! A [`Hook`] counts, times, logs, limits or fails driver calls, and works with every driver. A pair of
//! hooks is a hook.

use super::calls::{Call, CallKind};
use super::poison::Poison;
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

    /// Makes a call for `bytes` if the hook allows it, and shows what it did if it succeeds.
    fn show<T: Copy>(
        &mut self,
        kind: CallKind,
        bytes: u64,
        call: impl FnOnce(&mut D) -> Status<T>,
        shown: impl FnOnce(T) -> Call,
    ) -> Status<T> {
        let answer = self.pass(kind, bytes, call)?;
        self.hook.after(&shown(answer));
        Ok(answer)
    }

    fn show_malloc(&mut self, bytes: u64, placed: &Status<DeviceAddr>) {
        match placed {
            &Ok(addr) => self.hook.after(&Call::Malloc { bytes, addr }),
            Err(DriverError::OutOfMemory) => self.hook.after(&Call::MallocRefused { bytes }),
            Err(_) => {}
        }
    }
}

/// The virtual memory of a driver.
fn memory<D: Driver>(driver: &mut D) -> Status<&mut dyn VirtualMemory> {
    driver.virtual_memory().ok_or(DriverError::NotSupported)
}

/// The pool of a driver.
fn pool<D: Driver>(driver: &mut D) -> Status<&mut dyn StreamOrdered> {
    driver.stream_ordered().ok_or(DriverError::NotSupported)
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
        let call = |driver: &mut D| driver.wait_event(stream, event);
        self.show(CallKind::WaitEvent, 0, call, |()| Call::WaitEvent {
            stream,
        })
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
        let call = |driver: &mut D| driver.synchronize_stream(stream);
        let shown = |()| Call::SynchronizeStream { stream };
        self.show(CallKind::SynchronizeStream, 0, call, shown)
    }

    fn synchronize_device(&mut self) -> Status {
        let call = Driver::synchronize_device;
        self.show(CallKind::SynchronizeDevice, 0, call, |()| {
            Call::SynchronizeDevice
        })
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

    /// Bypasses the hook: these calls are not the allocator's.
    fn poison(&mut self) -> Option<&mut dyn Poison> {
        self.driver.poison()
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
        let call = |driver: &mut D| memory(driver)?.reserve(bytes);
        let shown = |addr| Call::Reserve { bytes, addr };
        self.show(CallKind::Reserve, bytes, call, shown)
    }

    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let call = |driver: &mut D| memory(driver)?.free_address(addr, bytes);
        let shown = |()| Call::FreeAddress { addr, bytes };
        self.show(CallKind::FreeAddress, bytes, call, shown)
    }

    fn create(&mut self, bytes: u64, kind: HandleKind) -> Status<MemoryHandle> {
        let call = |driver: &mut D| memory(driver)?.create(bytes, kind);
        let shown = |handle| Call::Create { bytes, handle };
        let created = self.show(CallKind::Create, bytes, call, shown);
        if created == Err(DriverError::OutOfMemory) {
            self.hook.after(&Call::CreateRefused { bytes });
        }
        created
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status {
        let call = |driver: &mut D| memory(driver)?.release(handle, bytes);
        let shown = |()| Call::Release { handle };
        self.show(CallKind::Release, bytes, call, shown)
    }

    /// Bypasses the hook: the memory stays that of this process.
    fn export(&mut self, handle: MemoryHandle, kind: HandleKind) -> Status<SharedHandle> {
        memory(&mut self.driver)?.export(handle, kind)
    }

    /// Bypasses the hook: the memory is that of another process.
    fn import(&mut self, bytes: u64, shared: SharedHandle) -> Status<MemoryHandle> {
        memory(&mut self.driver)?.import(bytes, shared)
    }

    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status {
        let call = |driver: &mut D| memory(driver)?.map(addr, bytes, handle);
        let shown = |()| Call::Map {
            addr,
            bytes,
            handle,
        };
        self.show(CallKind::Map, bytes, call, shown)
    }

    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let call = |driver: &mut D| memory(driver)?.set_access(addr, bytes);
        let shown = |()| Call::SetAccess { addr, bytes };
        self.show(CallKind::SetAccess, bytes, call, shown)
    }

    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status {
        let call = |driver: &mut D| memory(driver)?.unmap(addr, bytes);
        let shown = |()| Call::Unmap { addr, bytes };
        self.show(CallKind::Unmap, bytes, call, shown)
    }
}

impl<D: Driver, H: Hook> StreamOrdered for Tap<D, H> {
    fn pool_malloc(&mut self, bytes: u64, stream: StreamId) -> Status<DeviceAddr> {
        let call = |driver: &mut D| pool(driver)?.pool_malloc(bytes, stream);
        let shown = |addr| Call::PoolMalloc {
            bytes,
            addr,
            stream,
        };
        let placed = self.show(CallKind::PoolMalloc, bytes, call, shown);
        if placed == Err(DriverError::OutOfMemory) {
            self.hook.after(&Call::PoolMallocRefused { bytes });
        }
        placed
    }

    fn pool_free(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status {
        let call = |driver: &mut D| pool(driver)?.pool_free(addr, bytes, stream);
        let shown = |()| Call::PoolFree { addr, stream };
        self.show(CallKind::PoolFree, bytes, call, shown)
    }

    /// Bypasses the hook: only the first call reaches the device.
    fn free_stream(&mut self) -> Status<StreamId> {
        pool(&mut self.driver)?.free_stream()
    }

    fn set_pool(&mut self, settings: PoolSettings) -> Status {
        let call = |driver: &mut D| pool(driver)?.set_pool(settings);
        self.pass(CallKind::SetPool, 0, call)
    }

    fn pool_reserved(&mut self) -> Status<u64> {
        let call = |driver: &mut D| pool(driver)?.pool_reserved();
        let shown = |bytes| Call::PoolReserved { bytes };
        self.show(CallKind::PoolUsage, 0, call, shown)
    }

    fn pool_usage(&mut self) -> Status<PoolUsage> {
        let call = |driver: &mut D| pool(driver)?.pool_usage();
        let shown = |usage: PoolUsage| Call::PoolReserved {
            bytes: usage.reserved,
        };
        self.show(CallKind::PoolUsage, 0, call, shown)
    }

    fn reset_pool_peaks(&mut self) -> Status {
        let call = |driver: &mut D| pool(driver)?.reset_pool_peaks();
        self.pass(CallKind::SetPool, 0, call)
    }

    fn trim_pool(&mut self, keep: u64) -> Status {
        let call = |driver: &mut D| pool(driver)?.trim_pool(keep);
        self.show(CallKind::TrimPool, 0, call, |()| Call::TrimPool { keep })
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
