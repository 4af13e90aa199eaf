//! Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): the history of a device, and the state
//! that it led to.
//!
//! A snapshot has one [`Recording`] for each device. [`read`](mod@read) reads the file formats,
//! [`workload`] turns a recording into a workload, and [`verify`] checks whether the reference makes the
//! recorded decisions. The [`Snapshot`](coalesce_alloc::snapshot::Snapshot) of `coalesce-alloc` is the
//! opposite direction: the state that one of our allocators reports.

pub mod calls;
mod consistent;
pub mod coverage;
mod device;
mod emptied;
#[cfg(test)]
pub(crate) mod fixture;
pub mod limit;
pub mod origin;
pub mod process;
pub mod read;
pub mod release;
pub mod rewind;
pub mod settings;
mod skipped;
pub mod verify;
pub mod workload;

use std::collections::HashMap;
use std::sync::Arc;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::TraceEntry;
use coalesce_alloc::snapshot::SegmentInfo;
use foldhash::fast::FixedState;

use self::process::Process;
pub use self::read::read;
use self::release::Releases;

/// The part of a snapshot that concerns one device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// The device's number.
    pub device: u32,
    /// `PYTORCH_CUDA_ALLOC_CONF` at the end, if the snapshot contains it.
    pub conf: Option<String>,
    /// The history, oldest entry first. The beginning may be missing, because PyTorch keeps the entries in a
    /// ring buffer.
    pub entries: Vec<TraceEntry>,
    /// The stack of each entry, in the order of `entries`; empty if no stacks were recorded.
    pub entry_stacks: Vec<StackId>,
    /// The pool of each entry, in the order of `entries`; empty in snapshots of PyTorch 2.11 and earlier,
    /// which do not record it.
    pub entry_pools: Vec<MempoolId>,
    /// The stacks of the forward pass that led to an allocation of the backward pass, by the index of its entry.
    /// PyTorch 2.9 and later record them while `torch.autograd.set_detect_anomaly` is on.
    pub forward_stacks: HashMap<usize, StackId, FixedState>,
    /// What the program noted about an entry with `torch.cuda.memory._set_memory_metadata`, by the index of the
    /// entry; entries without a note are absent.
    pub entry_labels: HashMap<usize, String, FixedState>,
    /// The segments after the last entry, by address.
    pub segments: Vec<SegmentInfo>,
    /// The stacks that allocated the blocks of `segments`, by the address of the block.
    pub block_stacks: HashMap<DeviceAddr, StackId, FixedState>,
    /// All stacks, without duplicates. The first is the empty stack.
    pub stacks: Vec<Stack>,
    /// The releases of PyTorch that write the keys of the snapshot.
    pub written_by: Releases,
    /// What `coalesce.record()` noted about the process when it wrote the snapshot.
    pub process: Process,
    /// The phases that the program announced, in order of time.
    pub annotations: Vec<Annotation>,
    /// Anomalies that the reader could work around, one sentence each.
    pub remarks: Vec<String>,
}

/// The index of a stack in [`Recording::stacks`]. The default is the empty stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StackId(pub u32);

/// A call stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack {
    /// The frames, innermost first; stacks share equal frames.
    pub frames: Vec<Arc<Frame>>,
}

/// A stack frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its file.
    pub filename: String,
    /// The line; C++ frames may have 2^64 − 1.
    pub line: u64,
}

/// The begin or the end of a phase of the program: `Optimizer.step#AdamW.step`, `ProfilerStep#3`, …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Annotation {
    /// The name of the phase.
    pub name: String,
    /// Whether the phase begins; otherwise it ends.
    pub is_start: bool,
    /// The time, on the clock of [`TraceEntry::time_us`].
    pub time_us: u64,
}

impl Recording {
    /// The pool of the entry with this index. If entries do not record it, the pool of the segment that has
    /// its address at the end, or else the default pool.
    #[must_use]
    pub fn pool_of(&self, entry: usize) -> MempoolId {
        if let Some(&pool) = self.entry_pools.get(entry) {
            return pool;
        }
        let addr = self.entries.get(entry).map(|entry| entry.addr);
        let around = addr.and_then(|addr| self.segment_around(addr));
        around.map_or(MempoolId::DEFAULT, |segment| segment.pool)
    }

    /// The segment that contains an address at the end.
    fn segment_around(&self, addr: DeviceAddr) -> Option<&SegmentInfo> {
        let behind = self
            .segments
            .partition_point(|segment| segment.address <= addr);
        let below = self.segments.get(behind.checked_sub(1)?)?;
        (addr < below.end()).then_some(below)
    }

    /// The stack of the entry with this index; none if no stacks were recorded.
    #[must_use]
    pub fn stack_of(&self, entry: usize) -> Option<&Stack> {
        let id = self.entry_stacks.get(entry)?;
        self.stacks.get(id.0 as usize)
    }
}
