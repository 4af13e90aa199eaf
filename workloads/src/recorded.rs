//! A workload with the conditions under which it was recorded.

use crate::conditions::RecordedConditions;
use crate::op::{Sink, Workload, WorkloadError};

/// A workload that names the conditions under which it was recorded.
pub struct Recorded<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The conditions.
    pub conditions: RecordedConditions,
}

impl Workload for Recorded<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.workload.emit(sink)
    }

    fn inner(&self) -> Option<&dyn Workload> {
        Some(self.workload)
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        Some(&self.conditions)
    }
}
