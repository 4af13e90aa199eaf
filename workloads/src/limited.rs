//! A workload in a process that is limited from outside.

use crate::op::{Op, Sink, Workload, WorkloadError};

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

    fn inner(&self) -> Option<&dyn Workload> {
        Some(self.workload)
    }
}
