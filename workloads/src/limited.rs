//! A workload in a process that is limited from outside.

use std::sync::Arc;

use crate::budget::Budget;
use crate::conditions::RecordedConditions;
use crate::op::{Op, Sink, Workload, WorkloadError};
use crate::start::StartState;

/// A workload whose limits are never above another one: of the two, the smaller applies.
#[derive(Clone, Copy)]
pub struct Limited<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The most bytes that its process may ever reserve, which is also the limit of the allocator at the start.
    pub most: Option<u64>,
}

impl Workload for Limited<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let Some(most) = self.most else {
            return self.workload.emit(sink);
        };
        self.workload.emit(&mut |op: Op<'_>| {
            sink.op(match op {
                Op::Limit { bytes } => Op::Limit {
                    bytes: Some(bytes.map_or(most, |bytes| bytes.min(most))),
                },
                op => op,
            })
        })
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.workload.start()
    }

    fn recorded_failures(&self) -> Option<u64> {
        self.workload.recorded_failures()
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        self.workload.conditions()
    }

    fn budget(&self) -> Budget {
        self.workload.budget()
    }
}
