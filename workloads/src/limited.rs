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

    struct Limits;

    impl Workload for Limits {
        fn name(&self) -> &str {
            "limits"
        }

        fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
            let limits = [Some(5), Some(20), None];
            let mut ops = limits.into_iter().map(|bytes| Op::Limit { bytes });
            ops.try_for_each(|op| sink.op(op).map(|_| ()))?;
            sink.op(Op::EmptyCache).map(|_| ())
        }
    }

    #[test]
    fn the_smaller_limit_applies() {
        let limits = |limit| {
            let (workload, mut seen) = (
                Limited {
                    workload: &Limits,
                    limit,
                },
                Vec::new(),
            );
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
