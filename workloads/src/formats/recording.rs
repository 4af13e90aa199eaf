//! A memory snapshot of PyTorch (`torch.cuda.memory._dump_snapshot`): what happened on a device, and the
//! state it led to.
//!
//! A [`Recording`] is what one device did. It says nothing of the file it came from: whoever reads a
//! format fills it, and whoever replays, advises or draws takes it from here.

mod addresses;
pub mod calls;
mod origin;
pub mod program;
pub mod read;
pub mod rewind;
pub mod settings;
pub mod verify;

use std::collections::HashMap;
use std::sync::Arc;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::TraceEntry;
use coalesce_alloc::snapshot::SegmentInfo;
use foldhash::fast::FixedState;

pub use self::read::{ReadError, is_recording, read};

/// What a snapshot tells of one device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    /// The device's number.
    pub device: u32,
    /// `PYTORCH_CUDA_ALLOC_CONF` at the end, if the snapshot says.
    pub conf: Option<String>,
    /// What happened, the oldest first. The beginning may be missing: PyTorch keeps a ring of entries.
    pub entries: Vec<TraceEntry>,
    /// The stack of each entry, in the order of `entries`; empty if no stacks were recorded at all.
    pub entry_stacks: Vec<StackId>,
    /// The pool of each entry, in the order of `entries`; empty if the snapshot does not say, as those
    /// of PyTorch 2.11 and earlier do not.
    pub entry_pools: Vec<MempoolId>,
    /// The segments after the last entry, by address.
    pub segments: Vec<SegmentInfo>,
    /// The stacks that allocated the blocks of `segments`, by the block's address.
    pub block_stacks: HashMap<DeviceAddr, StackId, FixedState>,
    /// All stacks, once each. The first is the empty one.
    pub stacks: Vec<Stack>,
    /// What the program said of its phases, in order of time.
    pub annotations: Vec<Annotation>,
    /// What the reader found strange but could do without, one sentence each.
    pub remarks: Vec<String>,
}

/// The number of a stack in [`Recording::stacks`]. The default is the empty one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StackId(pub u32);

/// Who called whom, the innermost first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack {
    /// The frames, the innermost first; each is shared by all stacks it is in.
    pub frames: Vec<Arc<Frame>>,
}

/// A place in a program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// Its file.
    pub filename: String,
    /// The line; of frames in C++ 2^64 − 1 is seen, too.
    pub line: u64,
}

/// The program enters or leaves a phase: `Optimizer.step#AdamW.step`, `ProfilerStep#3`, …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Annotation {
    /// What the phase is called.
    pub name: String,
    /// Whether it is entered; otherwise it is left.
    pub is_start: bool,
    /// When, on the clock of [`TraceEntry::time_us`].
    pub time_us: u64,
}

impl Recording {
    /// The pool of the entry with this index. Where entries do not say, it is that of the segment which
    /// is at its address at the end; everybody's if there is none.
    #[must_use]
    pub fn pool_of(&self, entry: usize) -> MempoolId {
        if let Some(&pool) = self.entry_pools.get(entry) {
            return pool;
        }
        let addr = self.entries.get(entry).map(|entry| entry.addr);
        let around = addr.and_then(|addr| self.segment_around(addr));
        around.map_or(MempoolId::DEFAULT, |segment| segment.pool)
    }

    /// The segment at an address at the end.
    fn segment_around(&self, addr: DeviceAddr) -> Option<&SegmentInfo> {
        let behind = self
            .segments
            .partition_point(|segment| segment.address <= addr);
        let below = self.segments.get(behind.checked_sub(1)?)?;
        (addr < below.end()).then_some(below)
    }

    /// The stack of the entry with this index; nothing if no stacks were recorded at all.
    #[must_use]
    pub fn stack_of(&self, entry: usize) -> Option<&Stack> {
        let id = self.entry_stacks.get(entry)?;
        self.stacks.get(id.0 as usize)
    }
}
