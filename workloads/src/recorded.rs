//! A workload with the conditions under which it was recorded.

use std::sync::Arc;

use crate::budget::Budget;
use crate::conditions::RecordedConditions;
use crate::op::{Sink, Workload, WorkloadError};
use crate::start::StartState;

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

    fn start(&self) -> Option<&Arc<StartState>> {
        self.workload.start()
    }

    fn recorded_failures(&self) -> Option<u64> {
        self.workload.recorded_failures()
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        Some(&self.conditions)
    }

    fn budget(&self) -> Budget {
        self.workload.budget()
    }
}
