//! The course of a recorded program whose requests fail, or failed when recorded.
//!
//! - A request that failed when recorded has a [tag](FAILED) that says so. If it succeeds, it is freed at once, because
//!   the further course of the program is unknown; a larger device thus shows how much memory it takes.
//! - A request that fails now but did not when recorded ends the program. But if a later failure was recorded, the
//!   program handles failures: it resumes after that failure, and the requests up to it are skipped.

use crate::op::{Answer, Op, Sink, WorkloadError};

/// The prefix of the tag of a request that failed when recorded.
pub(crate) const FAILED: &str = "failed when recorded";

/// Sends the operations of a program.
pub(crate) struct Course {
    /// Requests to come that failed when recorded. None if the program was not recorded: it goes on whatever fails.
    failures: Option<u64>,
    /// Whether requests are skipped up to the next failure.
    gives_up: bool,
}

impl Course {
    /// The course of a program. `failures` counts the requests that failed when it was recorded, if it was.
    pub(crate) fn new(failures: Option<u64>) -> Self {
        Self {
            failures,
            gives_up: false,
        }
    }

    /// Sends the next operation, unless it is skipped. Returns whether the program goes on.
    pub(crate) fn send(&mut self, op: Op<'_>, sink: &mut dyn Sink) -> Result<bool, WorkloadError> {
        let (Some(failures), Op::Malloc { id, tag, .. }) = (&mut self.failures, op) else {
            sink.op(op)?;
            return Ok(true);
        };
        let failed = tag.starts_with(FAILED);
        *failures = failures.saturating_sub(u64::from(failed));
        if self.gives_up {
            self.gives_up = !failed;
            return Ok(true);
        }
        match sink.op(op)? {
            Answer::Done if failed => _ = sink.op(Op::Free { id })?,
            Answer::OutOfMemory if !failed => self.gives_up = true,
            _ => {}
        }
        Ok(!self.gives_up || *failures > 0)
    }
}
