//! The request that fails under the current settings.

use coalesce_workloads::formats::snapshot::workload::{FAILED, without_mark};
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};
use schemars::JsonSchema;
use serde::Serialize;

use super::peak::now;

/// A failed request, and memory at that moment, in bytes. The cache was emptied before the request failed.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Failure {
    /// Its event, counted from 0.
    pub event: u64,
    /// Bytes requested.
    pub request_bytes: u64,
    /// The operator and the line of the program; empty if unknown.
    pub origin: String,
    /// Requested by all other live tensors.
    pub requested_bytes: u64,
    /// Reserved from the device.
    pub reserved_bytes: u64,
    /// Free, but in pieces that cannot serve the request.
    pub free_bytes: u64,
    /// Whether the request failed when the program was recorded, too.
    pub is_recorded: bool,
    /// Whether requests succeed after it: the program handles the error.
    pub is_handled: bool,
}

impl Failure {
    /// Requested memory if the request had succeeded, in bytes.
    #[must_use]
    pub fn demand_bytes(&self) -> u64 {
        self.requested_bytes.saturating_add(self.request_bytes)
    }

    /// Whether the program went on, if so many requests were served afterwards.
    fn is_survived(&self, served: u64) -> bool {
        served > if self.is_recorded { OF_HANDLER } else { 0 }
    }

    fn of(step: &Step<'_>, request_bytes: u64, tag: &str) -> Self {
        let reserved = now(&step.stats.reserved_bytes);
        Self {
            event: step.event,
            request_bytes,
            origin: without_mark(tag).to_owned(),
            requested_bytes: now(&step.stats.requested_bytes),
            reserved_bytes: reserved,
            free_bytes: reserved.saturating_sub(now(&step.stats.active_bytes())),
            is_recorded: tag.starts_with(FAILED),
            is_handled: false,
        }
    }
}

/// A library that catches the error may look at its tensors, with a few requests, before it raises the error again.
const OF_HANDLER: u64 = 16;

/// Finds the failure that ends the program, or else the first one.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureFinder {
    first: Option<Failure>,
    last: Option<Failure>,
    /// Requests that were served after the first and after the last failure.
    served: [u64; 2],
}

impl FailureFinder {
    /// The last failed request if no request succeeds after it, or else the first; `None` if none fails.
    pub fn found(self) -> Option<Failure> {
        let [after_first, after_last] = self.served;
        let last = self.last.filter(|last| !last.is_survived(after_last));
        last.or(self.first.map(|first| Failure {
            is_handled: first.is_survived(after_first),
            ..first
        }))
    }
}

impl Observer for FailureFinder {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let Op::Malloc { bytes, tag, .. } = step.op else {
            return Ok(());
        };
        match step.outcome {
            Outcome::OutOfMemory => {
                let failure = Failure::of(step, bytes, tag);
                self.first.get_or_insert_with(|| failure.clone());
                self.last = Some(failure);
                self.served[1] = 0;
            }
            Outcome::Placed(_) if self.first.is_some() => {
                self.served = self.served.map(|served| served + 1);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_the_program_survives_does_not_end_it() {
        let failure = |event| Failure {
            event,
            request_bytes: 1,
            is_recorded: true,
            ..Failure::default()
        };
        let found = |failures: &[u64], served| {
            let finder = FailureFinder {
                first: failures.first().copied().map(failure),
                last: failures.last().copied().map(failure),
                served,
            };
            let found = finder.found();
            found.map(|failure| (failure.event, failure.is_handled))
        };
        assert_eq!(found(&[], [0, 0]), None);
        assert_eq!(found(&[3, 9], [50, OF_HANDLER]), Some((9, false)));
        assert_eq!(found(&[3, 9], [50, 17]), Some((3, true)));
        assert_eq!(found(&[3], [17, 17]), Some((3, true)));
        assert_eq!(found(&[3], [0, 0]), Some((3, false)));
    }
}
