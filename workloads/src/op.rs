//! The operations of a program on its allocator, and the contract of workloads.

use std::error::Error;
use std::io;
use std::sync::Arc;

use coalesce_alloc::PoolCall;

use crate::budget::{Budget, OverAccount};
use crate::conditions::RecordedConditions;
use crate::start::StartState;
use crate::surroundings::Change;

/// An operation with its tag as text.
pub type Op<'a> = Operation<&'a str>;

/// An operation of a program on its allocator. Ids name allocations and are unique among live ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<Tag> {
    /// Allocate.
    Malloc {
        /// The number by which a free names it.
        id: u64,
        /// Requested bytes, before any rounding.
        bytes: u64,
        /// The number of its stream; 0 is the default stream.
        stream: u32,
        /// The operator of the framework that requested it, if known.
        tag: Tag,
    },
    /// Free an allocation.
    Free {
        /// The allocation.
        id: u64,
    },
    /// Use an allocation on another stream (`Tensor.record_stream`).
    RecordStream {
        /// The allocation.
        id: u64,
        /// The number of the stream.
        stream: u32,
    },
    /// Return all cached memory to the device (`torch.cuda.empty_cache`).
    EmptyCache,
    /// Direct requests to a private pool, or capture a CUDA graph.
    Pool(PoolCall),
    /// Limit the memory that the process may reserve from here on, as `torch.cuda.set_per_process_memory_fraction` does.
    /// Memory reserved beyond the limit is kept.
    Limit {
        /// The most bytes; without a limit if none.
        bytes: Option<u64>,
    },
    /// Change something outside the program.
    Surroundings(Change),
    /// Enter a phase of the program: `step 3`, `forward`, `backward`, …
    Mark {
        /// The phase.
        tag: Tag,
    },
}

impl Op<'_> {
    /// Allocates on the default stream, for no known operator.
    #[must_use]
    pub const fn malloc(id: u64, bytes: u64) -> Self {
        Self::Malloc {
            id,
            bytes,
            stream: 0,
            tag: "",
        }
    }
}

impl<Tag> Operation<Tag> {
    /// The same operation with another form of its tag, if it has one.
    #[must_use]
    pub fn with_tag<New>(self, of: impl FnOnce(Tag) -> New) -> Operation<New> {
        use Operation::{EmptyCache, Free, Limit, Malloc, Mark, Pool, RecordStream, Surroundings};
        match self {
            Malloc {
                id,
                bytes,
                stream,
                tag,
            } => Malloc {
                id,
                bytes,
                stream,
                tag: of(tag),
            },
            Free { id } => Free { id },
            RecordStream { id, stream } => RecordStream { id, stream },
            EmptyCache => EmptyCache,
            Pool(call) => Pool(call),
            Limit { bytes } => Limit { bytes },
            Surroundings(change) => Surroundings(change),
            Mark { tag } => Mark { tag: of(tag) },
        }
    }
}

/// The result of an operation, as the program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The operation succeeded.
    Done,
    /// The device has no memory for the request.
    OutOfMemory,
}

/// Receives the operations of a workload.
pub trait Sink {
    /// Takes the next operation.
    ///
    /// # Errors
    /// If the sink wants no more operations; the workload then ends with the same error.
    fn op(&mut self, op: Op<'_>) -> Result<Answer, WorkloadError>;
}

impl<F: FnMut(Op<'_>) -> Result<Answer, WorkloadError>> Sink for F {
    fn op(&mut self, op: Op<'_>) -> Result<Answer, WorkloadError> {
        self(op)
    }
}

/// A sequence of operations that can be replayed: a trace, a snapshot with its history, a family or a
/// preset. It can be replayed repeatedly and by several threads at once, and depends on nothing but the
/// answers. Most workloads ignore the answers.
pub trait Workload: Send + Sync {
    /// Its name in results.
    fn name(&self) -> &str;

    /// Sends all operations, in order.
    ///
    /// # Errors
    /// The error of the sink, or [`WorkloadError::Source`] if the source cannot be read.
    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError>;

    /// The workload that an adaptor changes. All that follows is then that workload's, unless the adaptor says otherwise.
    fn inner(&self) -> Option<&dyn Workload> {
        None
    }

    /// The memory that is reserved before the first operation, if any. The first operations request its
    /// live blocks, for allocators that cannot start with it.
    fn start(&self) -> Option<&Arc<StartState>> {
        self.inner()?.start()
    }

    /// The number of requests that failed when the program was recorded; none if it was not recorded. A recorded program
    /// stops at a failure that was not recorded; if a later one was, it continues after that.
    fn recorded_failures(&self) -> Option<u64> {
        self.inner()?.recorded_failures()
    }

    /// The conditions under which the program was recorded, if the source names them.
    fn conditions(&self) -> Option<&RecordedConditions> {
        self.inner()?.conditions()
    }

    /// How much memory may be kept of the operations. A file sets it by its size.
    fn budget(&self) -> Budget {
        self.inner().map_or(Budget::UNLIMITED, Workload::budget)
    }
}

/// The reason why a workload ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The source of the workload is invalid or cannot be read.
    #[error(transparent)]
    Source(Box<dyn Error + Send + Sync>),
    /// The allocator failed for another reason than lack of memory.
    #[error("event {event}")]
    Allocator {
        /// The event, counted from 0.
        event: u64,
        /// The error of the allocator.
        source: coalesce_alloc::error::Error,
    },
    /// A parameter of a family is invalid.
    #[error("{family}: {reason}")]
    Parameter {
        /// The family.
        family: &'static str,
        /// The parameter and its valid values.
        reason: String,
    },
    /// The output made of the workload cannot be written.
    #[error("cannot write")]
    Output(#[from] io::Error),
    /// The sink wants no more operations.
    #[error("stopped: {0}")]
    Stopped(String),
    /// More would be kept in memory than its budget allows.
    #[error(transparent)]
    OverBudget(#[from] OverAccount),
}
