//! One operation of a program on its allocator, and the contract of workloads.

use std::io;

use crate::formats::trace::TraceError;
use crate::surroundings::Change;

/// What a program does next. Ids name allocations; no two live ones have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op<'a> {
    /// Allocate.
    Malloc {
        /// Its name from now on.
        id: u64,
        /// Bytes asked for, before any rounding.
        bytes: u64,
        /// The number of the stream it is for; 0 is the default stream.
        stream: u32,
        /// Who asked: an operator of the framework, if known.
        tag: &'a str,
    },
    /// Give an allocation back.
    Free {
        /// Its name.
        id: u64,
    },
    /// Another stream uses an allocation, too.
    RecordStream {
        /// The allocation.
        id: u64,
        /// The number of the stream.
        stream: u32,
    },
    /// Return all cached memory to the device (`torch.cuda.empty_cache`).
    EmptyCache,
    /// Something happens that is not the program's doing.
    Around(Change),
    /// The program enters a phase: `step 3`, `forward`, `backward`, …
    Mark {
        /// The phase.
        tag: &'a str,
    },
}

/// What the program is told of its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was done.
    Done,
    /// There was no memory for it.
    OutOfMemory,
}

/// Where the operations of a workload go.
pub trait Sink {
    /// Takes the next operation.
    ///
    /// # Errors
    /// If nothing more is wanted; the workload then ends with the same error.
    fn op(&mut self, op: Op<'_>) -> Result<Answer, WorkloadError>;
}

impl<F: FnMut(Op<'_>) -> Result<Answer, WorkloadError>> Sink for F {
    fn op(&mut self, op: Op<'_>) -> Result<Answer, WorkloadError> {
        self(op)
    }
}

/// A stream of operations that can be had again and again, by several threads at once, and is the
/// same for the same answers. Most programs do not look at the answers, as if memory had no end.
pub trait Workload: Send + Sync {
    /// What it is called in results.
    fn name(&self) -> &str;

    /// Sends all operations, in order.
    ///
    /// # Errors
    /// That of the sink, or that its source cannot be read.
    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError>;
}

/// Why a workload ended before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A recording is wrong or cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The allocator failed, other than for lack of memory.
    #[error("event {event}")]
    Allocator {
        /// The event, counted from 0.
        event: u64,
        /// What the allocator said.
        source: coalesce_alloc::error::Error,
    },
    /// A parameter of a family has no meaning.
    #[error("{family}: {reason}")]
    Parameter {
        /// The family.
        family: &'static str,
        /// Which parameter, and what would be right.
        reason: String,
    },
    /// What is made of it cannot be written.
    #[error("cannot write")]
    Output(#[from] io::Error),
    /// The sink wants no more.
    #[error("stopped: {0}")]
    Stopped(String),
}
