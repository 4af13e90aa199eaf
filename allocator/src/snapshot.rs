//! The state of an allocator in the form of `torch.cuda.memory._snapshot()`.
//!
//! Source: PyTorch 2.6 to 2.15. Serialised, these types have the keys of the settings' release in PyTorch's
//! order, so that tools for its snapshots can read them. Stack traces (`frames`) are always empty.

use std::collections::BTreeMap;

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::driver::{DeviceAddr, StreamId};
use crate::history::{Action, TraceEntry};
use crate::mempool::MempoolId;
use crate::release::{Release, is_written, v2};
use crate::settings::Settings;
use crate::stats::PoolKind;

/// The complete state at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The segments of all devices, by device and address.
    pub segments: Vec<SegmentInfo>,
    /// The history of each device.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// For each device the private pools of entries, by their position. All other entries concern a default pool.
    pub entry_pools: Vec<BTreeMap<usize, MempoolId>>,
    /// The settings in force, which name the release.
    pub allocator_settings: Settings,
}

/// The keys that releases after 2.6 added, at any level, with the first release that writes them.
const ADDED: [(&str, Release); 8] = [
    ("compile_context", v2(8)),                   // #152707
    ("graph_capture_record_stream_reuse", v2(9)), // #158352
    ("user_metadata", v2(10)),                    // #165490
    ("pool_id", v2(12)),                          // #177717
    ("max_round_threshold", v2(13)),
    ("max_cached_size", v2(13)),
    ("host_segments", v2(14)),
    ("host_traces", v2(14)),
];

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
    /// Requested bytes. A free block keeps the figure of its last allocation, or of the block it was split
    /// from. It is 0 if the block was never allocated.
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

named! {
    /// The state of a block, with its name in snapshots.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum BlockState {
        /// Allocated.
        ActiveAllocated = "active_allocated",
        /// Freed while other streams may still use it.
        ActivePendingFree = "active_pending_free",
        /// Free.
        Inactive = "inactive",
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

/// A dict with the keys of a release.
struct Dict<M> {
    map: M,
    release: Release,
}

impl<M: SerializeMap> Dict<M> {
    fn of<S: Serializer<SerializeMap = M>>(
        release: Release,
        serializer: S,
    ) -> Result<Self, S::Error> {
        let map = serializer.serialize_map(None)?;
        Ok(Self { map, release })
    }

    /// Writes a key if the release has it.
    fn add<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), M::Error> {
        if is_written(&ADDED, key, self.release) {
            self.map.serialize_entry(key, value)
        } else {
            Ok(())
        }
    }
}

const EMPTY: &[()] = &[];

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let release = self.allocator_settings.release;
        let traces = self
            .device_traces
            .iter()
            .enumerate()
            .map(|(device, entries)| {
                let pool = |position: usize| self.entry_pools.get(device)?.get(&position).copied();
                let entries = entries.iter().enumerate().map(|(position, entry)| Entry {
                    entry,
                    pool: pool(position).unwrap_or(MempoolId::DEFAULT),
                    release,
                });
                entries.collect::<Vec<_>>()
            });
        let mut dict = Dict::of(release, serializer)?;
        dict.add("segments", &self.segments)?;
        dict.add("device_traces", &Vec::from_iter(traces))?;
        dict.add("allocator_settings", &Form(&self.allocator_settings))?;
        // Annotations of the program and memory of the host, which are not modelled.
        dict.add("external_annotations", EMPTY)?;
        dict.add("host_segments", EMPTY)?;
        dict.add("host_traces", EMPTY)?;
        dict.map.end()
    }
}

struct Entry<'a> {
    entry: &'a TraceEntry,
    pool: MempoolId,
    release: Release,
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = self.entry;
        let place = match entry.action {
            Action::Oom => "device_free",
            _ => "addr",
        };
        let mut dict = Dict::of(self.release, serializer)?;
        dict.add("action", entry.action.name())?;
        dict.add(place, &entry.addr)?;
        dict.add("size", &entry.size)?;
        dict.add("stream", &entry.stream.0.cast_signed())?;
        dict.add("time_us", &entry.time_us)?;
        dict.add("compile_context", "N/A")?;
        dict.add("user_metadata", "")?;
        dict.add("pool_id", &(self.pool.0, self.pool.1))?;
        dict.map.end()
    }
}

struct Form<'a>(&'a Settings);

impl Serialize for Form<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let settings = self.0;
        let pinned = &settings.pinned;
        let or_minus_one = |bytes: Option<u64>| bytes.map_or(-1, u64::cast_signed);
        let mut dict = Dict::of(settings.release, serializer)?;
        dict.add("PYTORCH_CUDA_ALLOC_CONF", &settings.source)?;
        dict.add("max_split_size", &or_minus_one(settings.max_split_size))?;
        let threshold = settings.garbage_collection_threshold;
        dict.add("garbage_collection_threshold", &threshold)?;
        dict.add("expandable_segments", &settings.expandable_segments)?;
        let threads = pinned.num_register_threads;
        dict.add("pinned_num_register_threads", &threads)?;
        let release_lock = settings.release_lock_on_cudamalloc;
        dict.add("release_lock_on_cudamalloc", &release_lock)?;
        let host_register = pinned.use_cuda_host_register;
        dict.add("pinned_use_cuda_host_register", &host_register)?;
        let reuse = settings.graph_capture_record_stream_reuse;
        dict.add("graph_capture_record_stream_reuse", &reuse)?;
        dict.add(
            "max_round_threshold",
            &or_minus_one(pinned.max_round_threshold),
        )?;
        dict.add("max_cached_size", &or_minus_one(pinned.max_cached_size))?;
        dict.add("roundup_power2_divisions", &settings.roundup)?;
        dict.map.end()
    }
}
