//! Short examples of articles that explain PyTorch's memory statistics.
//!
//! Each is a program of a dozen tensors whose figures can be checked by hand, with a mark where the
//! article reads `memory_allocated()`. They show the meaning of allocated, reserved and peak memory; they
//! do not challenge an allocator.

use serde::{Deserialize, Serialize};

use crate::families::parameters::below;
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Short examples of articles that explain PyTorch's memory statistics.
    pub struct Experiment as "experiment" {
        /// Which example: `product`, `product_fused`, `product_again`, `product_again_cleared`, `deleted`,
        /// `emptied`, `inference` or `inference_no_grad`.
        pub program: Example = Example::Product,
        /// Bytes of a tensor.
        #[serde(with = "crate::families::byte_count")]
        pub bytes: u64 [1..=1 << 58] = 3 << 30,
        /// Number of layers or tensors, where the example has several; below 2^16.
        pub count: u64 [1..=below(16)] = 10,
    }
}

/// The examples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Example {
    /// `y = 5 * x; y.mean().backward()`.
    Product,
    /// `(5 * x).mean().backward()`.
    ProductFused,
    /// `y = 5 * x; y.mean().backward()` twice: the second gradient accumulates into the first.
    ProductAgain,
    /// The same with `x.grad = None` before each repetition.
    ProductAgainCleared,
    /// Allocates tensors, deletes all, and repeats.
    Deleted,
    /// Allocates tensors, deletes every other and empties the cache, then the rest and again.
    Emptied,
    /// `for layer in layers: x = layer(x)`: each output is kept for a backward pass that never runs.
    Inference,
    /// The same under `torch.no_grad()`.
    InferenceNoGrad,
}

impl Experiment {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        program.mark("step 0");
        match self.program {
            Example::Product => self.product(&mut program),
            Example::ProductFused => self.product_fused(&mut program),
            Example::ProductAgain => self.product_again(&mut program, false),
            Example::ProductAgainCleared => self.product_again(&mut program, true),
            Example::Deleted => self.deleted(&mut program),
            Example::Emptied => self.emptied(&mut program),
            Example::Inference => self.inference(&mut program, true),
            Example::InferenceNoGrad => self.inference(&mut program, false),
        }
        program.finish()
    }

    fn product(&self, program: &mut Program<'_>) {
        let x = program.alloc(self.bytes, "zeros");
        program.mark("forward");
        let y = program.alloc(self.bytes, "mul");
        let loss = program.alloc(4, "mean");
        program.mark("backward");
        let gradient = self.backward(program);
        for tensor in [x, y, loss, gradient] {
            program.hold(tensor);
        }
    }

    fn product_fused(&self, program: &mut Program<'_>) {
        let x = program.alloc(self.bytes, "zeros");
        program.mark("forward");
        let product = program.alloc(self.bytes, "mul");
        let loss = program.alloc(4, "mean");
        program.free(product);
        program.mark("backward");
        let gradient = self.backward(program);
        for tensor in [x, loss, gradient] {
            program.hold(tensor);
        }
    }

    /// Computes the gradient of x; the gradient of the product lives until then.
    fn backward(&self, program: &mut Program<'_>) -> Tensor {
        let of_loss = program.alloc(4, "ones_like");
        let of_product = program.alloc(self.bytes, "div");
        let of_x = program.alloc(self.bytes, "mul");
        program.free(of_product);
        program.free(of_loss);
        of_x
    }

    /// A name keeps its tensor until it is assigned again, so the second product is computed while the
    /// first is live.
    fn product_again(&self, program: &mut Program<'_>, clears: bool) {
        let x = program.alloc(self.bytes, "zeros");
        let mut y: Option<Tensor> = None;
        let mut gradient: Option<Tensor> = None;
        for _ in 0..2 {
            if clears {
                program.free_all(gradient.take());
            }
            program.mark("forward");
            let product = program.alloc(self.bytes, "mul");
            program.free_all(y.replace(product));
            program.mark("backward");
            let loss = program.alloc(4, "mean");
            let of_x = self.backward(program);
            program.free(loss);
            if gradient.is_some() {
                program.free(of_x); // accumulated into the existing one
            } else {
                gradient = Some(of_x);
            }
        }
        program.hold(x);
        for tensor in y.into_iter().chain(gradient) {
            program.hold(tensor);
        }
    }

    fn tensors(&self, program: &mut Program<'_>) -> Vec<Tensor> {
        let tensors = (0..self.count).map(|_| program.alloc(self.bytes, "zeros"));
        tensors.collect()
    }

    fn deleted(&self, program: &mut Program<'_>) {
        let tensors = self.tensors(program);
        program.mark("del");
        program.free_all(tensors);
        program.mark("again");
        let tensors = self.tensors(program);
        program.mark("del");
        program.free_all(tensors);
    }

    fn emptied(&self, program: &mut Program<'_>) {
        let (mut every_other, mut rest) = (Vec::new(), Vec::new());
        for (nth, tensor) in self.tensors(program).into_iter().enumerate() {
            let list = if nth % 2 == 0 {
                &mut every_other
            } else {
                &mut rest
            };
            list.push(tensor);
        }
        for (tensors, mark) in [(every_other, "del every other"), (rest, "del the rest")] {
            program.mark(mark);
            program.free_all(tensors);
            program.mark("empty_cache");
            program.empty_cache();
        }
    }

    fn inference(&self, program: &mut Program<'_>, keeps_graph: bool) {
        let mut output = program.alloc(self.bytes, "zeros");
        let mut graph = Vec::new();
        program.mark("forward");
        for _ in 0..self.count {
            let next = program.alloc(self.bytes, "linear");
            let input = std::mem::replace(&mut output, next);
            if keeps_graph {
                graph.push(input);
            } else {
                program.free(input);
            }
        }
        program.mark("output");
        program.free(output);
        program.free_all(graph);
    }
}
