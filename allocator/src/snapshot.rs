//! The state of an allocator in the form of `torch.cuda.memory._snapshot()`.
//!
//! Source: PyTorch 2.11. Serialised, these types have PyTorch's keys in PyTorch's order, so that tools
//! for its snapshots can read them. Stack traces (`frames`) are always empty.

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::driver::{DeviceAddr, StreamId};
use crate::history::{Action, TraceEntry};
use crate::mempool::MempoolId;
use crate::settings::Settings;
use crate::stats::PoolKind;

/// The complete state at one moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Snapshot {
    /// The segments of all devices, by device and address.
    pub segments: Vec<SegmentInfo>,
    /// The history of each device.
    #[serde(serialize_with = "traces")]
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings in force.
    #[serde(serialize_with = "settings")]
    pub allocator_settings: Settings,
    /// Annotations of the program; always empty here.
    #[serde(serialize_with = "list")]
    pub external_annotations: [(); 0],
}

/// A contiguous range of reserved memory: one `cudaMalloc`, or one mapped run of an expandable segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// The number of the device.
    pub device: u32,
    /// The start address.
    pub address: DeviceAddr,
    /// The stream its blocks are allocated for.
    pub stream: StreamId,
    /// The kind of pool it belongs to.
    pub kind: PoolKind,
    /// The private pool it belongs to, or [`MempoolId::DEFAULT`].
    pub pool: MempoolId,
    /// Whether it is part of an expandable segment.
    pub is_expandable: bool,
    /// Its blocks by address, without gaps.
    pub blocks: Vec<BlockInfo>,
}

impl SegmentInfo {
    /// Its bytes.
    #[must_use]
    pub fn total_size(&self) -> u64 {
        self.sum_of(|_| true, |block| block.size)
    }

    /// The end address of its last block.
    #[must_use]
    pub fn end(&self) -> DeviceAddr {
        let end = self.blocks.last();
        end.map_or(self.address, |last| {
            DeviceAddr(last.address.0.saturating_add(last.size))
        })
    }

    /// Bytes of the allocated blocks.
    #[must_use]
    pub fn allocated_size(&self) -> u64 {
        self.sum_of(BlockInfo::is_allocated, |block| block.size)
    }

    /// Bytes of the active blocks: allocated or waiting for a stream.
    #[must_use]
    pub fn active_size(&self) -> u64 {
        self.sum_of(BlockInfo::is_active, |block| block.size)
    }

    /// Requested bytes of the active blocks.
    #[must_use]
    pub fn requested_size(&self) -> u64 {
        self.sum_of(BlockInfo::is_active, |block| block.requested_size)
    }

    fn sum_of(&self, which: fn(&BlockInfo) -> bool, what: fn(&BlockInfo) -> u64) -> u64 {
        self.blocks
            .iter()
            .filter(|block| which(block))
            .map(what)
            .fold(0, u64::saturating_add)
    }
}

/// A block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BlockInfo {
    /// The start address.
    pub address: DeviceAddr,
    /// Its bytes.
    pub size: u64,
    /// Requested bytes. An inactive block keeps those of its last user, or of the block it was split
    /// from; 0 if there was none.
    pub requested_size: u64,
    /// Its state.
    pub state: BlockState,
    #[serde(serialize_with = "list")]
    frames: [(); 0],
}

impl BlockInfo {
    /// Creates a block.
    #[must_use]
    pub fn new(address: DeviceAddr, size: u64, requested_size: u64, state: BlockState) -> Self {
        Self {
            address,
            size,
            requested_size,
            state,
            frames: [],
        }
    }

    /// Whether it is allocated.
    #[must_use]
    pub fn is_allocated(&self) -> bool {
        self.state == BlockState::ActiveAllocated
    }

    /// Whether it is allocated or waiting for a stream.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state != BlockState::Inactive
    }
}

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Allocated.
    ActiveAllocated,
    /// Freed while other streams may still use it.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The name in snapshots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [
            Self::ActiveAllocated,
            Self::ActivePendingFree,
            Self::Inactive,
        ]
        .into_iter()
        .find(|state| state.name() == name)
    }
}

impl Serialize for BlockState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for SegmentInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("SegmentInfo", 12)?;
        map.serialize_field("device", &self.device)?;
        map.serialize_field("address", &self.address)?;
        map.serialize_field("total_size", &self.total_size())?;
        map.serialize_field("allocated_size", &self.allocated_size())?;
        map.serialize_field("active_size", &self.active_size())?;
        map.serialize_field("requested_size", &self.requested_size())?;
        map.serialize_field("stream", &self.stream.0.cast_signed())?;
        map.serialize_field("segment_type", self.kind.name())?;
        map.serialize_field("segment_pool_id", &(self.pool.0, self.pool.1))?;
        map.serialize_field("is_expandable", &self.is_expandable)?;
        map.serialize_field("frames", &[(); 0][..])?;
        map.serialize_field("blocks", &self.blocks)?;
        map.end()
    }
}

/// Serialises as a list; serde would treat an array as a tuple.
fn list<S: Serializer>(items: &[()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(items)
}

fn traces<S: Serializer>(traces: &[Vec<TraceEntry>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        traces
            .iter()
            .map(|entries| entries.iter().map(Entry).collect::<Vec<_>>()),
    )
}

struct Entry<'a>(&'a TraceEntry);

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.0;
        let place = match entry.action {
            Action::Oom => "device_free",
            _ => "addr",
        };
        let mut map = serializer.serialize_map(Some(7))?;
        map.serialize_entry("action", entry.action.name())?;
        map.serialize_entry(place, &entry.addr)?;
        map.serialize_entry("size", &entry.size)?;
        map.serialize_entry("stream", &entry.stream.0.cast_signed())?;
        map.serialize_entry("time_us", &entry.time_us)?;
        map.serialize_entry("compile_context", "N/A")?;
        map.serialize_entry("user_metadata", "")?;
        map.end()
    }
}

fn settings<S: Serializer>(settings: &Settings, serializer: S) -> Result<S::Ok, S::Error> {
    let max_split_size = settings.max_split_size.map_or(-1, u64::cast_signed);
    let pinned = &settings.pinned;
    let mut map = serializer.serialize_map(Some(9))?;
    map.serialize_entry("PYTORCH_CUDA_ALLOC_CONF", &settings.source)?;
    map.serialize_entry("max_split_size", &max_split_size)?;
    map.serialize_entry(
        "garbage_collection_threshold",
        &settings.garbage_collection_threshold,
    )?;
    map.serialize_entry("expandable_segments", &settings.expandable_segments)?;
    map.serialize_entry("pinned_num_register_threads", &pinned.num_register_threads)?;
    map.serialize_entry(
        "release_lock_on_cudamalloc",
        &settings.release_lock_on_cudamalloc,
    )?;
    map.serialize_entry(
        "pinned_use_cuda_host_register",
        &pinned.use_cuda_host_register,
    )?;
    map.serialize_entry(
        "graph_capture_record_stream_reuse",
        &settings.graph_capture_record_stream_reuse,
    )?;
    map.serialize_entry("roundup_power2_divisions", &settings.roundup)?;
    map.end()
}
