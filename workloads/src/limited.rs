//! A workload in a process that is limited from outside.

use crate::op::{Op, Sink, Workload, WorkloadError};

/// A workload whose limits are lowered to another one, where that is smaller.
#[derive(Clone, Copy)]
pub struct Limited<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The most bytes that its process may ever reserve, which is also the limit of the allocator at the start.
    pub limit: Option<u64>,
}

impl Workload for Limited<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let Some(most) = self.limit else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Answer;
    use crate::written::listed;

    #[test]
    fn the_smaller_limit_applies() {
        let mut ops = [Some(5), Some(20), None]
            .map(|bytes| Op::Limit { bytes })
            .to_vec();
        ops.push(Op::EmptyCache);
        let workload = listed("limits", ops);
        let limits = |limit| {
            let workload = Limited {
                workload: &workload,
                limit,
            };
            let mut seen = Vec::new();
            assert_eq!(workload.name(), "limits");
            let emitted = workload.emit(&mut |op: Op<'_>| {
                if let Op::Limit { bytes } = op {
                    seen.push(bytes);
                }
                Ok(Answer::Done)
            });
            emitted.unwrap();
            seen
        };
        assert_eq!(limits(None), [Some(5), Some(20), None]);
        assert_eq!(limits(Some(10)), [Some(5), Some(10), Some(10)]);
    }
}
