//! Writing a family as the program that it stands for.
//!
//! A [`Tensor`] can be freed only once: the compiler finds a double free.

use std::collections::BTreeSet;

use crate::op::{Answer, Op, Sink, WorkloadError};
use crate::surroundings::Change;

const DEFAULT_STREAM: u32 = 0;

/// Memory that the program has allocated.
#[derive(Debug)]
#[must_use = "a dropped tensor leaks its memory: free it or let the program hold it"]
pub struct Tensor {
    id: u64,
    bytes: u64,
}

impl Tensor {
    /// Requested bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A running program.
///
/// After the sink has refused an operation, nothing more is sent, every allocation seems to succeed,
/// and [`Program::finish`] returns the sink's error. A loop over a parameter must therefore stop once
/// [`Program::is_over`]; otherwise it runs through all its iterations, of which there can be 2^64.
pub struct Program<'s> {
    sink: &'s mut dyn Sink,
    next_id: u64,
    /// Tensors that live until the end.
    held: BTreeSet<u64>,
    outcome: Result<(), WorkloadError>,
}

impl<'s> Program<'s> {
    /// Starts a program.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            next_id: 0,
            held: BTreeSet::new(),
            outcome: Ok(()),
        }
    }

    /// Whether the sink has refused an operation, so that the program should stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.outcome.is_err()
    }

    /// Enters a phase.
    pub fn mark(&mut self, tag: &str) {
        self.send(Op::Mark { tag });
    }

    /// Enters step `step`, counted from 0. Returns false if the program should stop.
    #[must_use]
    pub fn step(&mut self, step: u64) -> bool {
        self.mark(&format!("step {step}"));
        !self.is_over()
    }

    /// Allocates a tensor on the default stream, for operator `tag`.
    pub fn alloc(&mut self, bytes: u64, tag: &str) -> Tensor {
        self.alloc_on(DEFAULT_STREAM, bytes, tag)
    }

    /// Allocates a tensor on a stream.
    pub fn alloc_on(&mut self, stream: u32, bytes: u64, tag: &str) -> Tensor {
        self.request(stream, bytes, tag).0
    }

    /// Allocates a tensor, or returns `None` if the device is out of memory.
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

    /// Records that another stream uses a tensor.
    pub fn record_stream(&mut self, tensor: &Tensor, stream: u32) {
        let id = tensor.id;
        self.send(Op::RecordStream { id, stream });
    }

    /// Returns all cached memory to the device.
    pub fn empty_cache(&mut self) {
        self.send(Op::EmptyCache);
    }

    /// Changes the surroundings of the program.
    pub fn around(&mut self, change: Change) {
        self.send(Op::Surroundings(change));
    }

    /// Frees a tensor.
    pub fn free(&mut self, tensor: Tensor) {
        self.send(Op::Free { id: tensor.id });
    }

    /// Frees several tensors, in order.
    pub fn free_all(&mut self, tensors: impl IntoIterator<Item = Tensor>) {
        for tensor in tensors {
            self.free(tensor);
        }
    }

    /// Allocates the scratch of an operator and frees it.
    pub fn scratch(&mut self, bytes: u64, tag: &str) {
        let tensor = self.alloc(bytes, tag);
        self.free(tensor);
    }

    /// Allocates a tensor computed from another, which is then freed.
    pub fn replace(&mut self, old: Tensor, bytes: u64, tag: &str) -> Tensor {
        let new = self.alloc(bytes, tag);
        self.free(old);
        new
    }

    /// Keeps a tensor until the program ends.
    pub fn hold(&mut self, tensor: Tensor) {
        self.held.insert(tensor.id);
    }

    /// Ends the program and frees all held tensors, oldest first.
    ///
    /// # Errors
    /// The sink's error, if it refused an operation.
    pub fn finish(mut self) -> Result<(), WorkloadError> {
        self.mark("end");
        for id in std::mem::take(&mut self.held) {
            self.send(Op::Free { id });
        }
        self.outcome
    }

    /// Sends an operation unless the program is over.
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
