//! Writing a workload as the program it stands for.
//!
//! A tensor is a value that can be given back once: the compiler finds a double free.

use std::collections::BTreeSet;

use crate::op::{Op, Sink, WorkloadError};

const DEFAULT_STREAM: u32 = 0;

/// Memory that the program holds.
#[derive(Debug)]
#[must_use = "a tensor nobody keeps is a leak: free it, or let the program hold it"]
pub struct Tensor {
    id: u64,
    bytes: u64,
}

impl Tensor {
    /// Bytes it was asked for with.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A running program.
///
/// Once the sink has had enough, nothing more is sent, and [`Program::finish`] says why.
pub struct Program<'s> {
    sink: &'s mut dyn Sink,
    next_id: u64,
    /// Tensors that live until the end.
    held: BTreeSet<u64>,
    outcome: Result<(), WorkloadError>,
}

impl<'s> Program<'s> {
    /// A program that has done nothing yet, on the default stream.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            next_id: 0,
            held: BTreeSet::new(),
            outcome: Ok(()),
        }
    }

    /// Whether nothing more is wanted: a reason to stop working.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.outcome.is_err()
    }

    /// Enters a phase.
    pub fn mark(&mut self, tag: &str) {
        self.send(Op::Mark { tag });
    }

    /// A new tensor, made by operator `tag`.
    pub fn alloc(&mut self, bytes: u64, tag: &str) -> Tensor {
        let id = self.next_id;
        self.next_id += 1;
        self.send(Op::Malloc {
            id,
            bytes,
            stream: DEFAULT_STREAM,
            tag,
        });
        Tensor { id, bytes }
    }

    /// Gives a tensor back.
    pub fn free(&mut self, tensor: Tensor) {
        self.send(Op::Free { id: tensor.id });
    }

    /// Gives several tensors back, in order.
    pub fn free_all(&mut self, tensors: impl IntoIterator<Item = Tensor>) {
        for tensor in tensors {
            self.free(tensor);
        }
    }

    /// Memory that an operator needs only while it runs.
    pub fn scratch(&mut self, bytes: u64, tag: &str) {
        let tensor = self.alloc(bytes, tag);
        self.free(tensor);
    }

    /// Makes a tensor from another, which is then given back.
    pub fn replace(&mut self, old: Tensor, bytes: u64, tag: &str) -> Tensor {
        let new = self.alloc(bytes, tag);
        self.free(old);
        new
    }

    /// Keeps a tensor until the program ends.
    pub fn hold(&mut self, tensor: Tensor) {
        self.held.insert(tensor.id);
    }

    /// Ends the program: what it still holds goes, oldest first.
    ///
    /// # Errors
    /// Why the sink wanted no more, if it did.
    pub fn finish(mut self) -> Result<(), WorkloadError> {
        self.mark("end");
        for id in std::mem::take(&mut self.held) {
            self.send(Op::Free { id });
        }
        self.outcome
    }

    fn send(&mut self, op: Op<'_>) {
        if self.outcome.is_ok() {
            self.outcome = self.sink.op(op);
        }
    }
}
