//! The lifetimes of a workload's requests, for offline policies.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};

use crate::keeping::Keeping;
use crate::op::{Answer, Op, Workload, WorkloadError};

/// Returns the lifetimes of all requests of a workload, if none of them fails. Uses of a block on other
/// streams and memory around the workload are not known in advance.
///
/// # Errors
/// If the workload cannot be read, or is longer than its [budget](Workload::budget) allows.
pub fn of(workload: &dyn Workload) -> Result<Lifetimes, WorkloadError> {
    /// Bytes of memory for each operation: the lifetime of a request, and what a plan for it takes.
    const PER_EVENT: u64 = 128;
    let mut program = LifetimeRecorder::default();
    let kept = Keeping {
        workload,
        per_event: PER_EVENT,
    };
    kept.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc {
                id, bytes, stream, ..
            } => program.malloc(id, bytes, StreamId::nth(stream)),
            Op::Free { id } => program.free(id),
            Op::Mark { tag } => program.mark(tag),
            Op::RecordStream { .. }
            | Op::EmptyCache
            | Op::Pool(_)
            | Op::Limit { .. }
            | Op::Surroundings(_) => {}
        }
        Ok(Answer::Done)
    })?;
    Ok(program.finish())
}
