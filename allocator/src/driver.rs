//! What an allocator needs of a device, and nothing else: memory, virtual memory, streams, events.
//!
//! This is the lowest layer. It knows nothing of blocks, pools or policies, and nothing above it
//! may know which driver it has.

pub mod calls;
pub mod contents;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod hooks;
pub mod sim;
mod stream_ordered;
pub mod tap;

use std::fmt;

use serde::Serialize;

pub use self::stream_ordered::{PoolSettings, PoolUsage, StreamOrdered};

/// An address in device memory. Null is what an allocation of zero bytes returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct DeviceAddr(pub u64);

impl DeviceAddr {
    /// The address of nothing.
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

    /// How many bytes above `base` this address lies. Meaningful only if it does.
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

/// A stream, by the value of its handle. An allocator may order its blocks by it, so the number
/// itself takes part in decisions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The default stream, whose handle is null.
    pub const DEFAULT: Self = Self(0);

    /// The distance between the handles of numbered streams.
    const HANDLE_STEP: u64 = 0x1000;

    /// The `k`-th stream where streams are only numbered; 0 is the default stream. Handles grow with
    /// `k`.
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

/// An event made by [`Driver::create_event`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub u32);

/// A piece of physical memory made by [`VirtualMemory::create`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryHandle(pub u64);

/// How physical memory can be shared with other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKind {
    /// Between machines, over NVLink (`CU_MEM_HANDLE_TYPE_FABRIC`). Few devices can.
    Fabric,
    /// On this machine (`CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`).
    FileDescriptor,
}

/// What the device says of its memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// Bytes that nobody uses, other processes included.
    pub free: u64,
    /// Bytes there are.
    pub total: u64,
}

/// Why a driver call did not do its work. A call that fails has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// There is not enough memory. The only error an allocator may recover from by itself.
    #[error("out of memory")]
    OutOfMemory,
    /// An argument names nothing the device knows: an interior pointer, a released handle, …
    #[error("invalid argument")]
    InvalidValue,
    /// The device cannot do this at all.
    #[error("operation not supported")]
    NotSupported,
    /// Anything else; a real device is often unusable afterwards.
    #[error("{0}")]
    Failed(String),
}

/// One device. A thread may hand it on to another.
///
/// Every call either does its work or fails and changes nothing.
pub trait Driver: Send {
    /// Bytes of memory the device has.
    fn total_memory(&self) -> u64;

    /// Free and total bytes now (`cudaMemGetInfo`).
    ///
    /// # Errors
    /// If the device does not answer.
    fn memory_info(&mut self) -> Result<MemoryInfo, DriverError>;

    /// An error that an earlier call left behind (`cudaGetLastError`). An allocator asks before it
    /// takes memory, so that a broken device is reported as that.
    ///
    /// # Errors
    /// The error left behind.
    fn last_error(&mut self) -> Result<(), DriverError>;

    /// What an allocation takes a whole number of, in bytes: 2 MiB on CUDA devices.
    fn granularity(&self) -> u64;

    /// Takes `bytes` of memory (`cudaMalloc`).
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if there are not so many; anything else is a failure.
    fn malloc(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError>;

    /// Returns an allocation of [`Driver::malloc`] to the device (`cudaFree`). The caller states its size,
    /// so that no layer in between has to remember it.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if no live allocation of `bytes` starts at `addr`.
    fn free(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError>;

    /// A new event, not recorded yet (counts as complete).
    ///
    /// # Errors
    /// If the device cannot make one.
    fn create_event(&mut self) -> Result<EventId, DriverError>;

    /// Marks the present end of a stream's work with `event`.
    ///
    /// # Errors
    /// If the event does not exist.
    fn record_event(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError>;

    /// Whether the work that `event` marks is done (`cudaEventQuery`).
    ///
    /// # Errors
    /// If the event does not exist.
    fn event_is_complete(&mut self, event: EventId) -> Result<bool, DriverError>;

    /// Lets all later work of `stream` wait until the work that `event` marks is done
    /// (`cudaStreamWaitEvent`); the caller does not wait.
    ///
    /// # Errors
    /// If the event does not exist.
    fn wait_event(&mut self, stream: StreamId, event: EventId) -> Result<(), DriverError>;

    /// Waits until the work that `event` marks is done.
    ///
    /// # Errors
    /// If the event does not exist or the work fails.
    fn synchronize_event(&mut self, event: EventId) -> Result<(), DriverError>;

    /// Waits for all work of a stream.
    ///
    /// # Errors
    /// If the work fails.
    fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), DriverError>;

    /// Waits for all work of all streams (`cudaDeviceSynchronize`).
    ///
    /// # Errors
    /// If the work fails.
    fn synchronize_device(&mut self) -> Result<(), DriverError>;

    /// Lets the device of that number work on this one's memory, that which is given out later too, if it
    /// can at all. Memory of [`Driver::malloc`] is open to all that CUDA's peer access is enabled for;
    /// mapped memory and that of pools has to be opened (`cuMemSetAccess`, `cuMemPoolSetAccess`).
    ///
    /// # Errors
    /// If there is no such device, or this one does not do it.
    fn open_to_peer(&mut self, _peer: u32) -> Result<(), DriverError> {
        Ok(())
    }

    /// Microseconds on the device's clock: what the history's time stamps are taken from.
    fn now_us(&self) -> u64;

    /// The virtual memory calls, if the device has them.
    fn virtual_memory(&mut self) -> Option<&mut dyn VirtualMemory>;

    /// The device's own stream-ordered pool, if it has one.
    fn stream_ordered(&mut self) -> Option<&mut dyn StreamOrdered> {
        None
    }
}

/// Address space apart from memory (CUDA's `cuMem*` calls).
///
/// One handle may be mapped at several addresses at once; its memory is in use until it is
/// released and mapped nowhere.
pub trait VirtualMemory {
    /// Takes `bytes` of address space.
    ///
    /// # Errors
    /// If there is no such range left.
    fn reserve(&mut self, bytes: u64) -> Result<DeviceAddr, DriverError>;

    /// Gives back a whole range that [`VirtualMemory::reserve`] returned. Nothing may be mapped in it.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] for any other range.
    fn free_address(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError>;

    /// Takes `bytes` of physical memory that can be shared as `kind` says.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if there are not so many; another if the device cannot share
    /// memory that way, or has no pages of that size.
    fn create(&mut self, bytes: u64, kind: HandleKind) -> Result<MemoryHandle, DriverError>;

    /// Releases a handle to `bytes` of memory (`cuMemRelease`). Its mappings stay valid.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such handle, or it was released before.
    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Result<(), DriverError>;

    /// Puts the whole of `handle`, which has `bytes`, behind the addresses from `addr` on.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if the range is not reserved or not empty, or the size is
    /// not the handle's.
    fn map(
        &mut self,
        addr: DeviceAddr,
        bytes: u64,
        handle: MemoryHandle,
    ) -> Result<(), DriverError>;

    /// Lets the device read and write `bytes` from `addr` on, all of them mapped.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if part of the range is not mapped.
    fn set_access(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError>;

    /// Undoes the mapping of `bytes` at `addr`.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such mapping.
    fn unmap(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError>;
}
