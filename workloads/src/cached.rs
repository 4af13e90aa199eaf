//! A workload in memory, to be replayed many times.
//!
//! Reading a recording takes as long as replaying it.

use std::sync::Arc;

use crate::budget::Account;
use crate::op::{Answer, Op, Sink, Workload, WorkloadError};
use crate::ops::Ops;
use crate::start::StartState;

/// Bytes of memory for each operation. It takes 32 bytes; the rest is room for what its replays keep.
const PER_EVENT: u64 = 256;

/// The operations of another workload if no request fails. The copy ignores the answers, even if the
/// original does not.
#[derive(Clone, Debug)]
pub struct Cached {
    name: String,
    pub(crate) ops: Ops,
    pub(crate) start: Option<Arc<StartState>>,
}

impl Cached {
    /// Reads a workload.
    ///
    /// # Errors
    /// If it cannot be read, or is longer than its [budget](Workload::budget) allows.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut ops = Ops::default();
        let mut account = Account::new(workload.name(), workload.budget());
        workload.emit(&mut |op: Op<'_>| {
            account.take(PER_EVENT + ops.new_tag(op))?;
            ops.push(op);
            Ok(Answer::Done)
        })?;
        Ok(Self {
            name: workload.name().to_owned(),
            ops,
            start: workload.start().cloned(),
        })
    }

    /// The number of operations, including marks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Workload for Cached {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        for op in self.ops.iter() {
            sink.op(op)?;
        }
        Ok(())
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.start.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn operations(workload: &dyn Workload) -> Vec<String> {
        let mut ops = Vec::new();
        workload
            .emit(&mut |op: Op<'_>| {
                ops.push(format!("{op:?}"));
                Ok(Answer::Done)
            })
            .unwrap();
        ops
    }

    #[test]
    fn the_copy_sends_the_same_operations() {
        for name in ["streams_in_time", "shared_gpu", "churn"] {
            let workload = presets::find(name)
                .unwrap()
                .build(toml::Table::new())
                .unwrap();
            let cached = Cached::of(workload.as_ref()).unwrap();
            assert_eq!(cached.name(), workload.name());
            assert_eq!(operations(&cached), operations(workload.as_ref()));
            assert!(!cached.is_empty());
        }
    }
}
