//! Workloads that a caller writes itself: as a function, as a program, or as a list of operations.

use crate::families::program::Program;
use crate::op::{Op, Sink, Workload, WorkloadError};

/// A workload that `emit` sends. It can be called by several threads at once.
pub fn written<F>(name: &'static str, emit: F) -> impl Workload
where
    F: Fn(&mut dyn Sink) -> Result<(), WorkloadError> + Send + Sync,
{
    Written { name, emit }
}

/// A workload that runs `run` as a program.
pub fn program(name: &'static str, run: impl Fn(&mut Program<'_>) + Send + Sync) -> impl Workload {
    written(name, move |sink| {
        let mut program = Program::new(sink);
        run(&mut program);
        program.finish()
    })
}

/// A workload of these operations.
pub fn listed(name: &'static str, ops: Vec<Op<'static>>) -> impl Workload {
    written(name, move |sink| {
        ops.iter().try_for_each(|&op| sink.op(op).map(|_| ()))
    })
}

struct Written<F> {
    name: &'static str,
    emit: F,
}

impl<F: Fn(&mut dyn Sink) -> Result<(), WorkloadError> + Send + Sync> Workload for Written<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        (self.emit)(sink)
    }
}
