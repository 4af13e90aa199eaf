//! The interface between an allocator and a device: memory, virtual memory, streams and events.
//!
//! This is the lowest layer. It knows nothing about blocks, pools or policies, and the layers above it do
//! not know which driver they use.

pub mod calls;
pub mod contents;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod hooks;
pub mod poison;
pub mod sim;
mod stream_ordered;
pub mod tap;
pub mod work;

use std::fmt;

use serde::Serialize;

use self::calls::CallKind;
use self::poison::Poison;
pub use self::stream_ordered::{PoolSettings, PoolUsage, StreamOrdered};

/// Bytes of which CUDA devices allocate and map whole multiples: 2 MiB.
pub const GRANULARITY: u64 = 2 << 20;

/// An address in device memory. An allocation of zero bytes returns null.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct DeviceAddr(pub u64);

impl DeviceAddr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// Whether this is [`DeviceAddr::NULL`].
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` above this one.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The distance in bytes from `base`, which must not be above this address.
    #[must_use]
    pub const fn offset_from(self, base: Self) -> u64 {
        self.0.wrapping_sub(base.0)
    }
}

impl fmt::Display for DeviceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for DeviceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A stream, identified by the value of its handle. Allocators may order blocks by it, so the value
/// affects decisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The default stream, whose handle is null.
    pub const DEFAULT: Self = Self(0);

    /// The distance between the handles of numbered streams.
    const HANDLE_STEP: u64 = 0x1000;

    /// The `k`-th stream of a device that numbers its streams; 0 is the default stream. Handles grow
    /// with `k`.
    #[must_use]
    pub const fn nth(k: u32) -> Self {
        Self(k as u64 * Self::HANDLE_STEP)
    }

    /// The inverse of [`StreamId::nth`].
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 / Self::HANDLE_STEP
    }
}

/// An event created by [`Driver::create_event`]. Drivers number their events from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u32);

/// Physical memory created by [`VirtualMemory::create`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryHandle(pub u64);

/// The way in which physical memory can be shared with other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKind {
    /// Between machines, over NVLink (`CU_MEM_HANDLE_TYPE_FABRIC`). Few devices support it.
    Fabric,
    /// On this machine (`CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`).
    FileDescriptor,
}

/// What another process needs to get physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedHandle {
    /// A `CUmemFabricHandle`, which any process may have.
    Fabric([u8; 64]),
    /// A file descriptor of the process that uses the value.
    FileDescriptor(i32),
}

/// Physical memory that another process can map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPage {
    /// Its size in bytes.
    pub bytes: u64,
    /// What the other process needs to get it.
    pub handle: SharedHandle,
}

/// Memory of the device, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// Bytes used by no process.
    pub free: u64,
    /// Bytes in total.
    pub total: u64,
}

/// What a driver call returns, or why it failed.
pub type Status<T = ()> = Result<T, DriverError>;

/// The reason why a driver call failed. A failed call has no effect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// Not enough memory. An allocator may recover from this error only.
    #[error("out of memory")]
    OutOfMemory,
    /// An argument is unknown to the device, such as an interior pointer or a released handle.
    #[error("invalid argument")]
    InvalidValue,
    /// The device does not support the call.
    #[error("operation not supported")]
    NotSupported,
    /// Any other error; a real device is often unusable afterwards.
    #[error("{0}")]
    Failed(String),
}

/// A node of a CUDA graph that is captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraphNode(pub u64);

/// What a stream has captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamCapture {
    /// The capture; no two of a process have the same number.
    pub id: u64,
    /// The nodes that the next operation of the stream will follow.
    pub last: Vec<GraphNode>,
}

/// A [`Driver::malloc`] that can be called while others use the driver.
pub type DetachedMalloc = Box<dyn FnOnce() -> Status<DeviceAddr> + Send>;

/// One device.
///
/// A call that fails has no effect.
pub trait Driver: Send {
    /// Returns the bytes of memory of the device.
    fn total_memory(&self) -> u64;

    /// Returns the free and total bytes (`cudaMemGetInfo`).
    ///
    /// # Errors
    /// If the device does not answer.
    fn memory_info(&mut self) -> Status<MemoryInfo>;

    /// Reports the error that an earlier call left behind (`cudaGetLastError`). An allocator calls this
    /// before it requests memory, so that a broken device is not mistaken for a full one.
    ///
    /// # Errors
    /// The error left behind.
    fn last_error(&mut self) -> Status;

    /// Returns the size in bytes of which every allocation is a multiple: 2 MiB on CUDA devices.
    fn granularity(&self) -> u64;

    /// Allocates `bytes` of memory (`cudaMalloc`).
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if not enough is free; any other error is a failure of the device.
    fn malloc(&mut self, bytes: u64) -> Status<DeviceAddr>;

    /// Returns a [`Driver::malloc`] of `bytes` that can be called while others use the driver; its answer goes to
    /// [`Driver::end_malloc`]. `None` if the driver has no such call.
    ///
    /// # Errors
    /// As [`Driver::malloc`].
    fn detached_malloc(&mut self, _bytes: u64) -> Status<Option<DetachedMalloc>> {
        Ok(None)
    }

    /// Takes over the answer to a call of [`Driver::detached_malloc`] for `bytes`, and returns it.
    ///
    /// # Errors
    /// That of the answer.
    fn end_malloc(&mut self, _bytes: u64, answer: Status<DeviceAddr>) -> Status<DeviceAddr> {
        answer
    }

    /// Returns an allocation of [`Driver::malloc`] to the device (`cudaFree`). The caller states its size,
    /// so that the layers in between need not record it.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if no live allocation of `bytes` starts at `addr`.
    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Status;

    /// Creates an event. It counts as complete until it is recorded.
    ///
    /// # Errors
    /// If the device cannot create one.
    fn create_event(&mut self) -> Status<EventId>;

    /// Records `event` after the work submitted to `stream` so far (`cudaEventRecord`).
    ///
    /// # Errors
    /// If the event does not exist.
    fn record_event(&mut self, event: EventId, stream: StreamId) -> Status;

    /// Returns whether the work before `event` is complete (`cudaEventQuery`).
    ///
    /// # Errors
    /// If the event does not exist.
    fn event_is_complete(&mut self, event: EventId) -> Status<bool>;

    /// Makes later work of `stream` wait for `event` (`cudaStreamWaitEvent`). The caller does not wait.
    ///
    /// # Errors
    /// If the event does not exist.
    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Status;

    /// Waits until the work before `event` is complete.
    ///
    /// # Errors
    /// If the event does not exist or the work fails.
    fn synchronize_event(&mut self, event: EventId) -> Status;

    /// Waits for all work of a stream.
    ///
    /// # Errors
    /// If the work fails.
    fn synchronize_stream(&mut self, stream: StreamId) -> Status;

    /// Waits for all work of all streams (`cudaDeviceSynchronize`).
    ///
    /// # Errors
    /// If the work fails.
    fn synchronize_device(&mut self) -> Status;

    /// Returns whether CUDA captures the current stream of the calling thread into a graph
    /// (`cudaStreamIsCapturing`). A driver that knows of no current stream answers no.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Returns the capture that the work of a stream goes to, and its last nodes there
    /// (`cudaStreamGetCaptureInfo`). `None` if the stream is not captured, or the driver does not know.
    ///
    /// # Errors
    /// If the device does not answer.
    fn capture_of(&mut self, _stream: StreamId) -> Status<Option<StreamCapture>> {
        Ok(None)
    }

    /// Returns the nodes that a node of a capture follows directly (`cudaGraphNodeGetDependencies`).
    ///
    /// # Errors
    /// If there is no such node, or the driver does not know.
    fn dependencies(&mut self, _node: GraphNode) -> Status<Vec<GraphNode>> {
        Err(DriverError::NotSupported)
    }

    /// Gives device `peer` access to the memory of this device, including later allocations, if the
    /// hardware supports it. Memory from [`Driver::malloc`] is covered by CUDA's peer access; mapped memory
    /// and memory from pools need this call (`cuMemSetAccess`, `cuMemPoolSetAccess`).
    ///
    /// # Errors
    /// If there is no such device, or this device refuses.
    fn open_to_peer(&mut self, _peer: u32) -> Status {
        Ok(())
    }

    /// Returns microseconds on the device's clock, the source of the time stamps in a history.
    fn now_us(&self) -> u64;

    /// Returns the virtual memory calls, if the device supports them.
    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory>;

    /// Accounts for a call that a model makes in place of the device, such as `cudaMallocAsync` on a device without a
    /// pool. A device without instruments ignores it.
    ///
    /// # Errors
    /// If the instruments fail the call.
    fn account(&mut self, _kind: CallKind, _bytes: u64) -> Status {
        Ok(())
    }

    /// Sets whether instruments count calls, charge time for them and inject failures into them. [`uncharged`] turns this
    /// off for a while. Logs contain all calls.
    fn charge_calls(&mut self, _on: bool) {}

    /// Returns the calls that poison memory, if the device has contents.
    fn poison(&mut self) -> Option<&mut dyn Poison> {
        None
    }

    /// Returns the device's stream-ordered pool, if it has one.
    fn stream_ordered(&mut self) -> Option<&mut dyn StreamOrdered> {
        None
    }
}

/// Makes driver calls that belong to a call that a model has [accounted](Driver::account) for, so that they are not charged
/// again.
pub fn uncharged<T>(device: &mut dyn Driver, calls: impl FnOnce(&mut dyn Driver) -> T) -> T {
    device.charge_calls(false);
    let answer = calls(device);
    device.charge_calls(true);
    answer
}

/// Address space managed separately from physical memory (CUDA's `cuMem*` calls).
///
/// One handle may be mapped at several addresses. Its memory is in use until the handle is released and
/// the last mapping is gone.
pub trait VirtualMemory {
    /// Reserves `bytes` of address space.
    ///
    /// # Errors
    /// If no such range is left.
    fn reserve(&mut self, bytes: u64) -> Status<DeviceAddr>;

    /// Frees a whole range returned by [`VirtualMemory::reserve`]. Nothing may be mapped in it.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] for any other range.
    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Status;

    /// Creates `bytes` of physical memory that can be shared as `kind` says.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if not enough is free; another error if the device cannot share memory
    /// that way or has no pages of that size.
    fn create(&mut self, bytes: u64, kind: HandleKind) -> Status<MemoryHandle>;

    /// Releases a handle to `bytes` of memory (`cuMemRelease`). Its mappings stay valid.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such handle, or it was released before.
    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Status;

    /// Returns what another process needs to get the memory of a handle, which was created for sharing as `kind`
    /// says. A file descriptor stays open until the handle is released. By default no memory can be shared.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such handle; another error if it cannot be shared.
    fn export(&mut self, _handle: MemoryHandle, _kind: HandleKind) -> Status<SharedHandle> {
        Err(DriverError::NotSupported)
    }

    /// Gets `bytes` of memory of another process. A file descriptor may be closed afterwards. By default there is
    /// no such memory.
    ///
    /// # Errors
    /// If the device does not know the memory.
    fn import(&mut self, _bytes: u64, _shared: SharedHandle) -> Status<MemoryHandle> {
        Err(DriverError::NotSupported)
    }

    /// Maps all of `handle`, which has `bytes`, at `addr`.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if the range is not reserved or not empty, or the handle has another
    /// size.
    fn map(&mut self, addr: DeviceAddr, bytes: u64, handle: MemoryHandle) -> Status;

    /// Gives the device read and write access to `bytes` mapped at `addr`.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if part of the range is not mapped.
    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Status;

    /// Removes the mapping of `bytes` at `addr`.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such mapping.
    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Status;
}
