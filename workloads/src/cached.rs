//! A workload held in memory, to be replayed many times.
//!
//! Reading a recording takes as long as replaying it, so whoever replays one a hundred times reads it
//! once.

use crate::op::{Answer, Op, Sink, Workload, WorkloadError};
use crate::ops::Ops;

/// The operations of another workload, as that sends them when every request is served. One that looks
/// at the answers does so no more.
#[derive(Clone, Debug)]
pub struct Cached {
    name: String,
    pub(crate) ops: Ops,
}

impl Cached {
    /// Reads a workload.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut ops = Ops::default();
        workload.emit(&mut |op: Op<'_>| {
            ops.push(op);
            Ok(Answer::Done)
        })?;
        Ok(Self {
            name: workload.name().to_owned(),
            ops,
        })
    }

    /// How many operations there are, marks included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it does nothing at all.
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
    fn it_sends_what_the_other_sends() {
        for name in ["streams_in_time", "shared_gpu", "churn"] {
            let workload = presets::find(name).unwrap();
            let workload = workload.build(toml::Table::new()).unwrap();
            let cached = Cached::of(workload.as_ref()).unwrap();
            assert_eq!(cached.name(), workload.name());
            assert_eq!(operations(&cached), operations(workload.as_ref()));
            assert!(!cached.is_empty());
        }
    }
}
