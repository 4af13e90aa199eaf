//! What a workload will do, for policies that plan ahead.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::foresight::{Foresight, Observed};

use crate::op::{Answer, Op, Workload, WorkloadError};

/// All requests of a workload that gets all it asks for. Nothing but what a policy may know: a stream
/// that uses memory of another comes as a surprise, and so does anything around the program.
///
/// # Errors
/// If the workload cannot be read.
pub fn of(workload: &dyn Workload) -> Result<Foresight, WorkloadError> {
    let mut program = Observed::default();
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc {
                id, bytes, stream, ..
            } => program.malloc(id, bytes, StreamId::nth(stream)),
            Op::Free { id } => program.free(id),
            Op::Mark { tag } => program.mark(tag),
            Op::RecordStream { .. } | Op::EmptyCache | Op::Around(_) => {}
        }
        Ok(Answer::Done)
    })?;
    Ok(program.finish())
}
