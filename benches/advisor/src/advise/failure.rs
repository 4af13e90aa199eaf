//! The request that fails under the current settings.

use coalesce_workloads::formats::snapshot::workload::{FAILED, without_mark};
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};
use schemars::JsonSchema;
use serde::Serialize;

use super::peak::now;

/// A failed request, and memory at that moment, in bytes. The cache was emptied before the request failed.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
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

/// Finds the failure that ends the program, or else the first one.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureFinder {
    first: Option<Failure>,
    last: Option<Failure>,
}

impl FailureFinder {
    /// The last failed request if no request succeeds after it, or else the first; `None` if none fails.
    pub fn found(self) -> Option<Failure> {
        self.last.filter(|last| !last.is_handled).or(self.first)
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
            }
            Outcome::Placed(_) => {
                for failure in [&mut self.first, &mut self.last].into_iter().flatten() {
                    failure.is_handled = true;
                }
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
        let failure = |event, is_handled| Failure {
            event,
            request_bytes: 1,
            origin: String::new(),
            requested_bytes: 0,
            reserved_bytes: 0,
            free_bytes: 0,
            is_recorded: false,
            is_handled,
        };
        let found = |first, last| {
            let finder = FailureFinder { first, last };
            finder.found().map(|failure| failure.event)
        };
        assert_eq!(found(None, None), None);
        let (first, last) = (failure(3, true), failure(9, false));
        assert_eq!(found(Some(first.clone()), Some(last)), Some(9));
        assert_eq!(found(Some(first), Some(failure(9, true))), Some(3));
    }
}
