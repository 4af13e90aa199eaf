//! Driver calls, by kind and with their arguments.

use std::fmt;

use super::{DeviceAddr, MemoryHandle, StreamId};

/// The kinds of driver calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallKind {
    /// `cudaMalloc`
    Malloc,
    /// `cudaFree`
    Free,
    /// `cudaMemGetInfo`
    MemoryInfo,
    /// `cuMemAddressReserve`
    Reserve,
    /// `cuMemAddressFree`
    FreeAddress,
    /// `cuMemCreate`
    Create,
    /// `cuMemRelease`
    Release,
    /// `cuMemMap`
    Map,
    /// `cuMemSetAccess`
    SetAccess,
    /// `cuMemUnmap`
    Unmap,
    /// `cudaEventCreate`
    CreateEvent,
    /// `cudaEventRecord`
    RecordEvent,
    /// `cudaEventQuery`
    QueryEvent,
    /// `cudaStreamWaitEvent`
    WaitEvent,
    /// `cudaEventSynchronize`
    SynchronizeEvent,
    /// `cudaStreamSynchronize`
    SynchronizeStream,
    /// `cudaDeviceSynchronize`
    SynchronizeDevice,
    /// `cudaMallocAsync`
    PoolMalloc,
    /// `cudaFreeAsync`
    PoolFree,
    /// `cudaMemPoolGetAttribute`
    PoolUsage,
    /// `cudaMemPoolSetAttribute`
    SetPool,
    /// `cudaMemPoolTrimTo`
    TrimPool,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::Malloc,
        Self::Free,
        Self::MemoryInfo,
        Self::Reserve,
        Self::FreeAddress,
        Self::Create,
        Self::Release,
        Self::Map,
        Self::SetAccess,
        Self::Unmap,
        Self::CreateEvent,
        Self::RecordEvent,
        Self::QueryEvent,
        Self::WaitEvent,
        Self::SynchronizeEvent,
        Self::SynchronizeStream,
        Self::SynchronizeDevice,
        Self::PoolMalloc,
        Self::PoolFree,
        Self::PoolUsage,
        Self::SetPool,
        Self::TrimPool,
    ];

    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the name used in cost profiles and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Free => "free",
            Self::MemoryInfo => "memory_info",
            Self::Reserve => "reserve",
            Self::FreeAddress => "free_address",
            Self::Create => "create",
            Self::Release => "release",
            Self::Map => "map",
            Self::SetAccess => "set_access",
            Self::Unmap => "unmap",
            Self::CreateEvent => "create_event",
            Self::RecordEvent => "record_event",
            Self::QueryEvent => "query_event",
            Self::WaitEvent => "wait_event",
            Self::SynchronizeEvent => "synchronize_event",
            Self::SynchronizeStream => "synchronize_stream",
            Self::SynchronizeDevice => "synchronize_device",
            Self::PoolMalloc => "pool_malloc",
            Self::PoolFree => "pool_free",
            Self::PoolUsage => "pool_usage",
            Self::SetPool => "set_pool",
            Self::TrimPool => "trim_pool",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Number of calls, by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallCounts([u64; CallKind::COUNT]);

impl CallCounts {
    /// Returns the number of calls of a kind.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> u64 {
        self.0[kind as usize]
    }

    pub(super) fn add(&mut self, kind: CallKind) {
        self.0[kind as usize] += 1;
    }
}

/// A call that changed the device, ran out of memory, or freed an unknown address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "fields are the arguments and results of the calls"
)]
pub enum Call {
    /// `cudaMalloc`
    Malloc { bytes: u64, addr: DeviceAddr },
    /// `cudaMalloc` that ran out of memory
    MallocRefused { bytes: u64 },
    /// `cudaFree`
    Free { addr: DeviceAddr, bytes: u64 },
    /// `cudaFree` of an address that is not the start of an allocation
    FreeInvalid { addr: DeviceAddr },
    /// `cuMemAddressReserve`
    Reserve { bytes: u64, addr: DeviceAddr },
    /// `cuMemAddressFree`
    FreeAddress { addr: DeviceAddr, bytes: u64 },
    /// `cuMemCreate`
    Create { bytes: u64, handle: MemoryHandle },
    /// `cuMemCreate` that ran out of memory
    CreateRefused { bytes: u64 },
    /// `cuMemRelease`
    Release { handle: MemoryHandle },
    /// `cuMemMap`
    Map {
        addr: DeviceAddr,
        bytes: u64,
        handle: MemoryHandle,
    },
    /// `cuMemSetAccess`
    SetAccess { addr: DeviceAddr, bytes: u64 },
    /// `cuMemUnmap`
    Unmap { addr: DeviceAddr, bytes: u64 },
    /// `cudaEventRecord`
    RecordEvent { stream: StreamId },
    /// `cudaStreamWaitEvent`
    WaitEvent { stream: StreamId },
    /// `cudaEventSynchronize`
    SynchronizeEvent { stream: StreamId },
    /// `cudaStreamSynchronize`
    SynchronizeStream { stream: StreamId },
    /// `cudaDeviceSynchronize`
    SynchronizeDevice,
    /// `cudaMallocAsync`
    PoolMalloc {
        bytes: u64,
        addr: DeviceAddr,
        stream: StreamId,
    },
    /// `cudaMallocAsync` that ran out of memory
    PoolMallocRefused { bytes: u64 },
    /// `cudaFreeAsync`
    PoolFree { addr: DeviceAddr, stream: StreamId },
    /// `cudaMemPoolGetAttribute`, with the bytes the pool has reserved
    PoolReserved { bytes: u64 },
    /// `cudaMemPoolTrimTo`
    TrimPool { keep: u64 },
}

/// Formats the call as one line: name, arguments, result.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Malloc { bytes, addr } => write!(f, "malloc {bytes} {addr}"),
            Self::MallocRefused { bytes } => write!(f, "malloc {bytes} OOM"),
            Self::Free { addr, .. } => write!(f, "free {addr}"),
            Self::FreeInvalid { addr } => write!(f, "free {addr} INVALID"),
            Self::Reserve { bytes, addr } => write!(f, "reserve {bytes} {addr}"),
            Self::FreeAddress { addr, bytes } => write!(f, "addrfree {addr} {bytes}"),
            Self::Create { bytes, handle } => write!(f, "create {bytes} h{}", handle.0),
            Self::CreateRefused { bytes } => write!(f, "create {bytes} OOM"),
            Self::Release { handle } => write!(f, "release h{}", handle.0),
            Self::Map {
                addr,
                bytes,
                handle,
            } => write!(f, "map {addr} {bytes} h{}", handle.0),
            Self::SetAccess { addr, bytes } => write!(f, "setaccess {addr} {bytes}"),
            Self::Unmap { addr, bytes } => write!(f, "unmap {addr} {bytes}"),
            Self::RecordEvent { stream } => write!(f, "event_record {}", Handle(stream)),
            Self::WaitEvent { stream } => write!(f, "event_wait {}", Handle(stream)),
            Self::SynchronizeEvent { stream } => write!(f, "event_sync {}", Handle(stream)),
            Self::SynchronizeStream { stream } => write!(f, "stream_sync {}", Handle(stream)),
            Self::SynchronizeDevice => write!(f, "devsync"),
            Self::PoolMalloc {
                bytes,
                addr,
                stream,
            } => write!(f, "pool_malloc {bytes} {addr} {}", Handle(stream)),
            Self::PoolMallocRefused { bytes } => write!(f, "pool_malloc {bytes} OOM"),
            Self::PoolFree { addr, stream } => write!(f, "pool_free {addr} {}", Handle(stream)),
            Self::PoolReserved { bytes } => write!(f, "pool_reserved {bytes}"),
            Self::TrimPool { keep } => write!(f, "pool_trim {keep}"),
        }
    }
}

/// Formats a stream as C's `%p` prints its handle.
struct Handle(StreamId);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            StreamId::DEFAULT => write!(f, "stream=(nil)"),
            StreamId(handle) => write!(f, "stream={handle:#x}"),
        }
    }
}
