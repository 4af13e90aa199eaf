//! What a deep-learning framework does with memory when it runs a program operator by operator.
//!
//! Models are written as their Python code is: values that refer to storage, locals that go at the
//! end of a function, operators that keep what their derivatives need. When memory is asked for and
//! given back then follows from the program, as it does in PyTorch: recomputation, mixed precision,
//! adapters and evaluation are compositions, not cases.
//!
//! - [`tensor`]: storage goes when nothing refers to it.
//! - [`tape`] records the way back, [`engine`] takes it, [`checkpoint`] forgets and recomputes.
//! - [`autocast`] computes in fewer bytes than are stored.
//! - [`ops`]: the operators, each with its output, its scratch, and what it keeps.
//! - [`optimizer`]: what happens after the way back; [`reducer`]: what several devices exchange
//!   during it.
//!
//! It has sizes and lifetimes, and no numbers. Sizes of scratch are those of PyTorch 2.11 on an
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

/// A program under way, with the state that a framework keeps for a thread.
pub(crate) struct Eager<'s> {
    program: RefCell<Program<'s>>,
    bin: Bin,
    /// Numbers given out: later nodes have higher ones.
    numbers: Cell<u64>,
    /// Whether the way back is recorded.
    recording: Cell<bool>,
    /// Whether it is being taken, which is done by a thread of its own.
    on_the_way_back: Cell<bool>,
    /// Whether operators only seem to run: nothing that they make is needed any more.
    idle: Cell<bool>,
    autocast: RefCell<Option<Autocast>>,
    hook: RefCell<Option<Hook>>,
    reducer: RefCell<Option<Reducer>>,
    /// What stays until the end.
    kept: RefCell<Vec<Tensor>>,
    /// Whether libraries have taken the memory that they take at their first use and keep: by thread
    /// (forward, back) and kind (products, products with bias).
    workspaces: Cell<[[bool; 2]; 2]>,
}

impl<'s> Eager<'s> {
    pub(crate) fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            program: RefCell::new(Program::new(sink)),
            bin: Bin::default(),
            numbers: Cell::new(0),
            recording: Cell::new(true),
            on_the_way_back: Cell::new(false),
            idle: Cell::new(false),
            autocast: RefCell::new(None),
            hook: RefCell::new(None),
            reducer: RefCell::new(None),
            kept: RefCell::default(),
            workspaces: Cell::default(),
        }
    }

    /// Whether nothing more is wanted: a reason to stop working.
    pub(crate) fn is_over(&self) -> bool {
        self.program.borrow().is_over()
    }

    /// Enters a phase.
    pub(crate) fn mark(&self, tag: &str) {
        self.program().mark(tag);
    }

    /// Ends the program. What still lives goes now, oldest first.
    pub(crate) fn finish<T>(self, alive: T) -> Result<(), WorkloadError> {
        drop(self.program());
        drop((alive, self.kept, self.reducer, self.autocast, self.hook));
        let mut program = self.program.into_inner();
        for block in self.bin.take() {
            program.hold(block);
        }
        program.finish()
    }

    /// The program, once it has been told what nothing refers to any more.
    fn program(&self) -> std::cell::RefMut<'_, Program<'s>> {
        let mut program = self.program.borrow_mut();
        program.free_all(self.bin.take());
        program
    }

    /// A new tensor of rows of `width` numbers, outside the record.
    pub(crate) fn alloc(&self, numbers: u64, width: u64, dtype: DType, tag: &str) -> Tensor {
        let bytes = numbers * dtype.bytes();
        self.alloc_bytes(bytes, tag).shaped(numbers, width, dtype)
    }

    /// A new tensor for use on a stream of that number.
    pub(crate) fn alloc_on(
        &self,
        stream: u32,
        (numbers, width): (u64, u64),
        dtype: DType,
        tag: &str,
    ) -> Tensor {
        let bytes = numbers * dtype.bytes();
        let block = self.program().alloc_on(stream, bytes, tag);
        let tensor = Tensor::new(Rc::clone(&self.bin), Some(block), bytes);
        tensor.shaped(numbers, width, dtype)
    }

    /// Says that a stream of that number uses a tensor, too.
    pub(crate) fn record_stream(&self, tensor: &Tensor, stream: u32) {
        if let Some(block) = tensor.block() {
            self.program().record_stream(block, stream);
        }
    }

    /// Memory for an operator's own use.
    pub(crate) fn alloc_bytes(&self, bytes: u64, tag: &str) -> Tensor {
        let block = (!self.idle.get()).then(|| self.program().alloc(bytes, tag));
        Tensor::new(Rc::clone(&self.bin), block, bytes)
    }

    /// A tensor like another one.
    pub(crate) fn alloc_like(&self, like: &Tensor, tag: &str) -> Tensor {
        self.alloc(like.numbers(), like.width(), like.dtype(), tag)
    }

    /// A parameter that is trained.
    pub(crate) fn parameter(&self, numbers: u64, width: u64, dtype: DType) -> Parameter {
        let data = self.alloc(numbers, width, dtype, "_to_copy");
        Parameter::new(data, self.next_number())
    }

    /// A parameter that is not trained.
    pub(crate) fn frozen(&self, numbers: u64, width: u64, dtype: DType) -> Parameter {
        Parameter::frozen(self.alloc(numbers, width, dtype, "_to_copy"))
    }

    /// Keeps a tensor until the program ends.
    pub(crate) fn keep(&self, tensor: Tensor) {
        self.kept.borrow_mut().push(tensor);
    }

    fn next_number(&self) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    /// Runs something with the record on or off.
    pub(crate) fn with_recording<T>(&self, on: bool, body: impl FnOnce() -> T) -> T {
        let before = self.recording.replace(on);
        let result = body();
        self.recording.set(before);
        result
    }

    /// A product was computed: at the first one of its kind its library takes a workspace.
    pub(crate) fn workspace(&self, with_bias: bool, tag: &str) {
        const PRODUCTS: u64 = 32 << 20;
        const WITH_BIAS: u64 = 1 << 20;
        if self.idle.get() {
            return;
        }
        let thread = usize::from(self.on_the_way_back.get());
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
