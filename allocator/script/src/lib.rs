//! The script language of the conformance oracle, which drives PyTorch's own binary. Running a script on
//! the reference prints what the oracle prints, line for line.
//!
//! A line has one operation; `#` starts a comment; ids are any words; extra fields are ignored.
//!
//! ```text
//! a ID BYTES [STREAM]   allocate               c          empty the cache
//! f ID                  free                   m F        limit memory to a fraction
//! r ID STREAM           record a stream        o CONF     change the settings
//! h 0|1                 hold events            t BYTES    set the capacity
//! e STREAM [N]   e *    complete events        u BYTES    set the memory used by others
//! y                     synchronize            x N        fail the next N requests for device memory
//! B P   E P   P P       begin or end allocating to private pool P; release it
//! U P 0|1               use pool P when memory is exhausted
//! N P   C P             never split blocks of pool P; empty its cache
//! V P NAME   R NAME     take a checkpoint of pool P; restore it
//! L P [ID...]           print whether the ids are the allocations of pool P
//! G 0|1                 end or begin a capture of all streams
//! k   K                 reset peaks; reset totals
//! s   S   p             print a line of statistics; all statistics; all segments
//! ```
//!
//! The output has `A ID ADDR` for an allocation, `oom ID MESSAGE`, `skip f ID` for an id that is not live,
//! `err N OP MESSAGE` for any other error of operation N, counted from 0; `R NAME freed ADDR... allocated ADDR...`
//! and `L P 0|1` for the operations of these letters; `> CALL` for the driver calls of
//! an operation; `S …`, `STAT …` and `NUM …` for statistics, `SEG …` and `BLK …` for segments and blocks,
//! `TRC …` for the history. Stream k has the handle k · 0x1000.

pub mod bench;
mod checkpoints;
mod parse;
mod pinned;
mod print;
mod run;

pub use self::parse::ParseError;
pub use self::pinned::run_pinned;
pub use self::run::{Options, RunError, run};

/// A parsed script.
#[derive(Clone, PartialEq, Debug)]
pub struct Script {
    ops: Vec<Op>,
    /// Invariant: every id in `ops` is an index into these names.
    ids: Vec<String>,
    /// Invariant: every checkpoint in `ops` is an index into these names.
    checkpoints: Vec<String>,
}

impl Script {
    /// The operations in order.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The names of the ids, to which operations refer by index.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }
}

/// An operation. Ids are indices into [`Script::ids`], as checkpoints are into their names; streams are numbers as written.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the crate documents the operations")]
pub enum Op {
    Malloc { id: u32, bytes: u64, stream: u32 },
    Free { id: u32 },
    RecordStream { id: u32, stream: u32 },
    HoldEvents(bool),
    CompleteEvents { stream: Option<u32>, count: u64 },
    SynchronizeDevice,
    EmptyCache,
    SetMemoryFraction(f64),
    ApplySettings(String),
    SetCapacity(u64),
    SetForeign(u64),
    RefuseNext(u64),
    BeginPool(u64),
    EndPool(u64),
    ReleasePool(u64),
    SetUseOnOom { pool: u64, on: bool },
    SetNoSplit(u64),
    EmptyPool(u64),
    SaveCheckpoint { pool: u64, checkpoint: u32 },
    RestoreCheckpoint(u32),
    CheckLiveAllocations { pool: u64, ids: Vec<u32> },
    SetCapturing(bool),
    SetReserveClass { stream: u32, class: Option<String> },
    ResetPeakStats,
    ResetAccumulatedStats,
    PrintStatsLine,
    PrintStats,
    PrintSegments,
}

impl Op {
    /// The letter of the operation.
    #[must_use]
    pub fn code(&self) -> char {
        match self {
            Self::Malloc { .. } => 'a',
            Self::Free { .. } => 'f',
            Self::RecordStream { .. } => 'r',
            Self::HoldEvents(_) => 'h',
            Self::CompleteEvents { .. } => 'e',
            Self::SynchronizeDevice => 'y',
            Self::EmptyCache => 'c',
            Self::SetMemoryFraction(_) => 'm',
            Self::ApplySettings(_) => 'o',
            Self::SetCapacity(_) => 't',
            Self::SetForeign(_) => 'u',
            Self::RefuseNext(_) => 'x',
            Self::BeginPool(_) => 'B',
            Self::EndPool(_) => 'E',
            Self::ReleasePool(_) => 'P',
            Self::SetUseOnOom { .. } => 'U',
            Self::SetNoSplit(_) => 'N',
            Self::EmptyPool(_) => 'C',
            Self::SaveCheckpoint { .. } => 'V',
            Self::RestoreCheckpoint(_) => 'R',
            Self::CheckLiveAllocations { .. } => 'L',
            Self::SetCapturing(_) => 'G',
            Self::SetReserveClass { .. } => 'T',
            Self::ResetPeakStats => 'k',
            Self::ResetAccumulatedStats => 'K',
            Self::PrintStatsLine => 's',
            Self::PrintStats => 'S',
            Self::PrintSegments => 'p',
        }
    }
}
