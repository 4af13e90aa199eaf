//! The memory behaviour of an eager deep-learning framework, operator by operator.
//!
//! Models are written like their Python code: values that refer to storage, locals that end with their
//! function, operators that save what their derivatives need. As in PyTorch, allocations and frees then
//! follow from the program: checkpointing, mixed precision, adapters and evaluation are compositions, not
//! special cases.
//!
//! - [`tensor`]: storage that is freed with its last reference.
//! - [`tape`] records the graph, [`engine`] runs the backward pass, [`checkpoint`] discards activations
//!   and recomputes them.
//! - [`autocast`]: mixed precision.
//! - [`ops`]: the operators, each with its output, its scratch and its saved tensors.
//! - [`optimizer`]: clipping and the optimizer step; [`reducer`]: the exchange of gradients between
//!   devices.
//!
//! Tensors have sizes and lifetimes but no values. The sizes of scratch are those of PyTorch 2.11 on an
//! H100, as far as the recorded traces show them.

pub(crate) mod autocast;
pub(crate) mod checkpoint;
pub(crate) mod engine;
pub(crate) mod ops;
pub(crate) mod optimizer;
pub(crate) mod reducer;
pub(crate) mod tape;
pub(crate) mod tensor;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use self::autocast::Autocast;
use self::checkpoint::Hook;
use self::reducer::Reducer;
use self::tensor::{Bin, DType, Parameter, Tensor};
use crate::families::program::Program;
use crate::op::{Sink, WorkloadError};

/// A running program, with the state that a framework keeps per thread.
pub(crate) struct Eager<'s> {
    program: RefCell<Program<'s>>,
    bin: Bin,
    /// The number of the next node: later nodes have higher numbers.
    next_number: Cell<u64>,
    /// Whether operators are recorded for the backward pass.
    recording: Cell<bool>,
    /// Whether a backward pass is running, which PyTorch does on another thread.
    in_backward: Cell<bool>,
    /// Whether operators run without allocating, because their results are not needed.
    idle: Cell<bool>,
    autocast: RefCell<Option<Autocast>>,
    hook: RefCell<Option<Hook>>,
    reducer: RefCell<Option<Reducer>>,
    /// Tensors that live until the end.
    kept: RefCell<Vec<Tensor>>,
    /// Whether libraries have allocated the workspaces that they keep from their first use on, by thread
    /// (forward, backward) and kind (products, products with bias).
    workspaces: Cell<[[bool; 2]; 2]>,
}

impl<'s> Eager<'s> {
    pub(crate) fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            program: RefCell::new(Program::new(sink)),
            bin: Bin::default(),
            next_number: Cell::new(0),
            recording: Cell::new(true),
            in_backward: Cell::new(false),
            idle: Cell::new(false),
            autocast: RefCell::new(None),
            hook: RefCell::new(None),
            reducer: RefCell::new(None),
            kept: RefCell::default(),
            workspaces: Cell::default(),
        }
    }

    /// Whether the program should stop.
    pub(crate) fn is_over(&self) -> bool {
        self.program.borrow().is_over()
    }

    /// Enters a phase.
    pub(crate) fn mark(&self, tag: &str) {
        self.program().mark(tag);
    }

    /// Enters step `step`. Returns false if the program should stop.
    #[must_use]
    pub(crate) fn step(&self, step: u64) -> bool {
        self.program().step(step)
    }

    /// Ends the program and frees everything alive, oldest first.
    pub(crate) fn finish<T>(self, alive: T) -> Result<(), WorkloadError> {
        drop(self.program());
        drop((alive, self.kept, self.reducer, self.autocast, self.hook));
        let mut program = self.program.into_inner();
        for block in self.bin.take() {
            program.hold(block);
        }
        program.finish()
    }

    /// The program, after freeing all blocks without references.
    fn program(&self) -> std::cell::RefMut<'_, Program<'s>> {
        let mut program = self.program.borrow_mut();
        program.free_all(self.bin.take());
        program
    }

    /// Allocates a tensor of rows of `width` elements, without recording it.
    pub(crate) fn alloc(&self, elements: u64, width: u64, dtype: DType, tag: &str) -> Tensor {
        let bytes = elements * dtype.bytes();
        self.alloc_bytes(bytes, tag).shaped(elements, width, dtype)
    }

    /// Allocates a tensor on a stream.
    pub(crate) fn alloc_on(
        &self,
        stream: u32,
        (elements, width): (u64, u64),
        dtype: DType,
        tag: &str,
    ) -> Tensor {
        let bytes = elements * dtype.bytes();
        let block = self.program().alloc_on(stream, bytes, tag);
        let tensor = Tensor::new(Rc::clone(&self.bin), Some(block), bytes);
        tensor.shaped(elements, width, dtype)
    }

    /// Records that another stream uses a tensor.
    pub(crate) fn record_stream(&self, tensor: &Tensor, stream: u32) {
        if let Some(block) = tensor.block() {
            self.program().record_stream(block, stream);
        }
    }

    /// Allocates scratch of an operator.
    pub(crate) fn alloc_bytes(&self, bytes: u64, tag: &str) -> Tensor {
        let block = (!self.idle.get()).then(|| self.program().alloc(bytes, tag));
        Tensor::new(Rc::clone(&self.bin), block, bytes)
    }

    /// Allocates a tensor like another one.
    pub(crate) fn alloc_like(&self, like: &Tensor, tag: &str) -> Tensor {
        self.alloc(like.elements(), like.width(), like.dtype(), tag)
    }

    /// Creates a parameter.
    pub(crate) fn parameter(&self, elements: u64, width: u64, dtype: DType) -> Parameter {
        let data = self.alloc(elements, width, dtype, "_to_copy");
        Parameter::new(data, self.next_number())
    }

    /// Creates a parameter that is not trained.
    pub(crate) fn frozen(&self, elements: u64, width: u64, dtype: DType) -> Parameter {
        Parameter::frozen(self.alloc(elements, width, dtype, "_to_copy"))
    }

    /// Keeps a tensor until the program ends.
    pub(crate) fn keep(&self, tensor: Tensor) {
        self.kept.borrow_mut().push(tensor);
    }

    fn next_number(&self) -> u64 {
        self.next_number.replace(self.next_number.get() + 1)
    }

    /// Runs `body` with recording on or off.
    pub(crate) fn with_recording<T>(&self, on: bool, body: impl FnOnce() -> T) -> T {
        let before = self.recording.replace(on);
        let result = body();
        self.recording.set(before);
        result
    }

    /// Allocates the library's workspace at the first product of a kind.
    pub(crate) fn workspace(&self, with_bias: bool, tag: &str) {
        const PRODUCTS: u64 = 32 << 20;
        const WITH_BIAS: u64 = 1 << 20;
        if self.idle.get() {
            return;
        }
        let thread = usize::from(self.in_backward.get());
        let kinds = [(true, PRODUCTS), (with_bias, WITH_BIAS)];
        for (kind, (used, bytes)) in kinds.into_iter().enumerate() {
            let mut workspaces = self.workspaces.get();
            if used && !workspaces[thread][kind] {
                self.keep(self.alloc_bytes(bytes, tag));
                workspaces[thread][kind] = true;
                self.workspaces.set(workspaces);
            }
        }
    }
}
