//! Gradient accumulation over several micro-batches, without and with the common mistakes.
//!
//! Without a mistake each micro-batch has a forward and a backward pass, and gradients are freed after
//! the update. Gradients that are never cleared stay live in the next forward pass: the peak, at the end
//! of a backward pass, is the same, but memory is more fragmented. Losses that are summed as tensors,
//! with one backward pass from the sum, keep the activations of all micro-batches live. Gradients that
//! are zeroed in place need the memory of those that are never cleared. Outputs that are kept in a list
//! grow without limit.
//!
//! All micro-batches are equal, so varying sizes cause no fragmentation. Reserved memory beyond the peak
//! depends on how gradients and activations fit into each other's holes.

use serde::{Deserialize, Serialize};

use crate::families::parameters::{MOST_LIVE, below};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Gradient accumulation over micro-batches in a stack of equal layers, with or without a mistake.
    pub struct GradAccumulation as "grad_accumulation" {
        /// Layers.
        pub layers: u64 = 24,
        /// Bytes of a layer's parameters, and of its gradients.
        #[serde(with = "crate::families::byte_count")]
        pub parameter_bytes: u64 [0..=below(58)] = 28 << 20,
        /// Bytes of the activation that a layer keeps for the backward pass.
        #[serde(with = "crate::families::byte_count")]
        pub activation_bytes: u64 [0..=below(58)] = 48 << 20,
        /// Micro-batches per update.
        pub micro_batches: u64 = 4,
        /// Updates.
        pub steps: u64 = 4,
        /// The programmer's mistake: `none`, `never_cleared`, `losses_kept`,
        /// `zeroed_in_place` or `outputs_kept`.
        pub mistake: Mistake = Mistake::None,
    }
    rules {
        "layers times micro_batches": layers.saturating_mul(micro_batches.max(1)) => 0..=MOST_LIVE,
    }
}

/// A mistake that costs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// None: gradients are freed after each update.
    None,
    /// Gradients are never cleared and keep accumulating.
    NeverCleared,
    /// Losses are summed as tensors, with one backward pass from the sum: the activations of all
    /// micro-batches of a step stay live.
    LossesKept,
    /// Gradients are zeroed in place instead of being freed.
    ZeroedInPlace,
    /// The logits of every micro-batch are kept in a list.
    OutputsKept,
}

impl GradAccumulation {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        program.mark("init");
        for _ in 0..self.layers {
            let parameter = program.alloc(self.parameter_bytes, "parameter");
            program.hold(parameter);
        }
        let mut gradients = Vec::new();
        for step in 0..self.steps {
            if !program.step(step) {
                break;
            }
            let mut graphs = Vec::new();
            for _ in 0..self.micro_batches {
                let graph = self.forward(&mut program);
                if self.mistake == Mistake::LossesKept {
                    graphs.push(graph);
                } else {
                    self.backward(&mut program, graph, &mut gradients);
                }
            }
            // The backward pass runs in reverse order.
            while let Some(graph) = graphs.pop() {
                self.backward(&mut program, graph, &mut gradients);
            }
            self.update(&mut program, step == 0);
            match self.mistake {
                Mistake::NeverCleared => {}
                Mistake::ZeroedInPlace => program.mark("zero_"),
                _ => program.free_all(gradients.drain(..)),
            }
        }
        program.free_all(gradients);
        program.finish()
    }
}

/// What a micro-batch keeps for the backward pass.
struct Graph {
    activations: Vec<Tensor>,
    loss: Tensor,
}

impl GradAccumulation {
    fn forward(&self, program: &mut Program<'_>) -> Graph {
        program.mark("forward");
        let mut activations = Vec::new();
        for _ in 0..self.layers {
            activations.push(program.alloc(self.activation_bytes, "linear"));
            program.scratch(2 * self.activation_bytes, "gelu");
        }
        let loss = program.alloc(4, "mean");
        Graph { activations, loss }
    }

    /// Computes gradients, or accumulates into existing ones.
    fn backward(&self, program: &mut Program<'_>, graph: Graph, gradients: &mut Vec<Tensor>) {
        program.mark("backward");
        let mut flowing = program.alloc(self.activation_bytes, "mean_backward");
        let are_new = gradients.is_empty();
        let last = graph.activations.len().saturating_sub(1);
        for (layer, activation) in graph.activations.into_iter().enumerate().rev() {
            flowing = program.replace(flowing, self.activation_bytes, "linear_backward");
            let gradient = program.alloc(self.parameter_bytes, "mm");
            if are_new {
                gradients.push(gradient);
            } else {
                program.free(gradient); // accumulated into the existing one
            }
            if layer == last && self.mistake == Mistake::OutputsKept {
                program.hold(activation);
            } else {
                program.free(activation);
            }
        }
        program.free(flowing);
        program.free(graph.loss);
    }

    /// AdamW: two states per parameter, and scratch for all parameters at once.
    fn update(&self, program: &mut Program<'_>, is_first: bool) {
        program.mark("optimizer");
        if is_first {
            for _ in 0..2 * self.layers {
                let state = program.alloc(self.parameter_bytes, "zeros_like");
                program.hold(state);
            }
        }
        let denominators: Vec<Tensor> = (0..self.layers)
            .map(|_| program.alloc(self.parameter_bytes, "sqrt"))
            .collect();
        program.free_all(denominators);
    }
}
