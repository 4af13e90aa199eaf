//! Writing a workload as the program it stands for.
//!
//! A tensor is a value that can be given back once: the compiler finds a double free.

use std::collections::BTreeSet;

use crate::op::{Answer, Op, Sink, WorkloadError};
use crate::surroundings::Change;

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
        self.alloc_on(DEFAULT_STREAM, bytes, tag)
    }

    /// A new tensor for use on a stream of that number.
    pub fn alloc_on(&mut self, stream: u32, bytes: u64, tag: &str) -> Tensor {
        self.request(stream, bytes, tag).0
    }

    /// A new tensor, or nothing if there is no memory for it.
    pub fn try_alloc(&mut self, bytes: u64, tag: &str) -> Option<Tensor> {
        let (tensor, answer) = self.request(DEFAULT_STREAM, bytes, tag);
        (answer == Answer::Done).then_some(tensor)
    }

    fn request(&mut self, stream: u32, bytes: u64, tag: &str) -> (Tensor, Answer) {
        let id = self.next_id;
        self.next_id += 1;
        let answer = self.send(Op::Malloc {
            id,
            bytes,
            stream,
            tag,
        });
        (Tensor { id, bytes }, answer)
    }

    /// Says that a stream of that number uses a tensor, too.
    pub fn record_stream(&mut self, tensor: &Tensor, stream: u32) {
        let id = tensor.id;
        self.send(Op::RecordStream { id, stream });
    }

    /// Returns all cached memory to the device.
    pub fn empty_cache(&mut self) {
        self.send(Op::EmptyCache);
    }

    /// Lets something happen that is not the program's doing.
    pub fn around(&mut self, change: Change) {
        self.send(Op::Surroundings(change));
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

    /// Sends an operation. Once nothing more is wanted, all of them are taken to be done.
    fn send(&mut self, op: Op<'_>) -> Answer {
        if self.outcome.is_err() {
            return Answer::Done;
        }
        match self.sink.op(op) {
            Ok(answer) => answer,
            Err(error) => {
                self.outcome = Err(error);
                Answer::Done
            }
        }
    }
}
