//! A workload that is kept in memory by whoever reads it.

use crate::budget::Account;
use crate::op::{Op, Sink, Workload, WorkloadError};

/// A workload that ends with an error when keeping its operations takes more than its budget.
#[derive(Clone, Copy)]
pub struct Keeping<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// Bytes of memory for each operation, apart from its tag.
    pub per_event: u64,
}

impl Workload for Keeping<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let budget = self.workload.budget();
        if !budget.is_limited() {
            return self.workload.emit(sink);
        }
        let mut account = Account::new(self.name(), budget);
        self.workload.emit(&mut |op: Op<'_>| {
            let tag = match op {
                Op::Malloc { tag, .. } | Op::Mark { tag } => tag.len() as u64,
                _ => 0,
            };
            account.take(self.per_event + tag)?;
            sink.op(op)
        })
    }

    fn inner(&self) -> Option<&dyn Workload> {
        Some(self.workload)
    }
}
