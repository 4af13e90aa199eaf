//! Driver calls, by kind and with their arguments.

use std::fmt;

use super::{DeviceAddr, MemoryHandle, StreamId};

named! {
    /// The kinds of driver calls, with the names used in cost profiles and results.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum CallKind {
        /// `cudaMalloc`
        Malloc = "malloc",
        /// `cudaFree`
        Free = "free",
        /// `cudaMemGetInfo`
        MemoryInfo = "memory_info",
        /// `cuMemAddressReserve`
        Reserve = "reserve",
        /// `cuMemAddressFree`
        FreeAddress = "free_address",
        /// `cuMemCreate`
        Create = "create",
        /// `cuMemRelease`
        Release = "release",
        /// `cuMemMap`
        Map = "map",
        /// `cuMemSetAccess`
        SetAccess = "set_access",
        /// `cuMemUnmap`
        Unmap = "unmap",
        /// `cudaEventCreate`
        CreateEvent = "create_event",
        /// `cudaEventRecord`
        RecordEvent = "record_event",
        /// `cudaEventQuery`
        QueryEvent = "query_event",
        /// `cudaStreamWaitEvent`
        WaitEvent = "wait_event",
        /// `cudaEventSynchronize`
        SynchronizeEvent = "synchronize_event",
        /// `cudaStreamSynchronize`
        SynchronizeStream = "synchronize_stream",
        /// `cudaDeviceSynchronize`
        SynchronizeDevice = "synchronize_device",
        /// `cudaMallocAsync`
        PoolMalloc = "pool_malloc",
        /// `cudaFreeAsync`
        PoolFree = "pool_free",
        /// `cudaMemPoolGetAttribute`
        PoolUsage = "pool_usage",
        /// `cudaMemPoolSetAttribute`
        SetPool = "set_pool",
        /// `cudaMemPoolTrimTo`
        TrimPool = "trim_pool",
    }
}

impl CallKind {
    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();
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
