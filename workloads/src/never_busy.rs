//! A workload on a device that is never busy.

use crate::op::{Answer, Op, Sink, Workload, WorkloadError};
use crate::surroundings::Change;

/// A workload without kernels: the work of a stream is complete at once, even where the workload says that it takes longer.
/// A GPU on which only the calls of the allocator are replayed behaves like this.
#[derive(Clone, Copy)]
pub struct NeverBusy<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
}

impl Workload for NeverBusy<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.workload.emit(&mut |op: Op<'_>| match op {
            Op::Surroundings(Change::HoldEvents(_) | Change::FinishEvents { .. }) => {
                Ok(Answer::Done)
            }
            op => sink.op(op),
        })
    }

    fn inner(&self) -> Option<&dyn Workload> {
        Some(self.workload)
    }
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::*;
    use crate::presets;

    fn pending(workload: &dyn Workload) -> (usize, usize) {
        let (mut pending, mut others) = (0, 0);
        workload
            .emit(&mut |op: Op<'_>| {
                match op {
                    Op::Surroundings(_) => pending += 1,
                    _ => others += 1,
                }
                Ok(Answer::Done)
            })
            .unwrap();
        (pending, others)
    }

    #[test]
    fn no_work_is_pending() {
        let late = presets::build("streams_late", Table::new()).unwrap();
        let (changes, others) = pending(&*late);
        assert!(changes > 0);
        let never_busy = NeverBusy { workload: &*late };
        assert_eq!(pending(&never_busy), (0, others));
        assert_eq!(never_busy.name(), late.name());
    }
}
