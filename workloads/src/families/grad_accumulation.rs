//! Gradients added up over several micro-batches before each update, done right and with the common
//! mistakes.
//!
//! Done right, each micro-batch is forward and back, and gradients go after the update. If they are
//! never cleared, the next forward pass runs on top of them: the peak is the same, since it is reached
//! at the end of a way back, but less memory is free in between, and in other pieces. If losses are
//! added up as tensors and the way back is taken once, the activations of all micro-batches are live
//! at once. If gradients are zeroed in place, the sums are right and the memory is that of gradients
//! that are never cleared. If outputs are kept in a list, each micro-batch leaves one behind, and
//! memory grows without end.
//!
//! All micro-batches are alike, so it shows no fragmentation by varying sizes; what is reserved beyond
//! the peak depends on how gradients and activations fit into each other's holes.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use crate::families::program::{Program, Tensor};
use crate::op::{Sink, Workload, WorkloadError};

/// Training steps of several micro-batches each, of a stack of equal layers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct GradAccumulation {
    /// What it is called in results.
    pub name: String,
    /// Layers.
    pub layers: u64,
    /// Bytes of a layer's parameters, and of their gradients.
    #[serde(with = "crate::families::byte_count")]
    pub parameter_bytes: u64,
    /// Bytes of an activation that a layer keeps for each micro-batch.
    #[serde(with = "crate::families::byte_count")]
    pub activation_bytes: u64,
    /// Micro-batches before each update.
    pub micro_batches: u64,
    /// Updates.
    pub steps: u64,
    /// What the programmer got wrong: `none`, `never_cleared`, `losses_kept`,
    /// `zeroed_in_place` or `outputs_kept`.
    pub mistake: Mistake,
}

/// A mistake that costs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// None: gradients are given back after each update.
    None,
    /// Gradients are never cleared. They stay where they are, and go on being added to.
    NeverCleared,
    /// Losses are added up as tensors and the way back is taken from the sum: the activations of all
    /// micro-batches of a step stay until then.
    LossesKept,
    /// Gradients are set to zero in place of being given back: they stay where they are, and no
    /// memory is asked for.
    ZeroedInPlace,
    /// The output of the last layer, the logits, is put into a list for each micro-batch.
    OutputsKept,
}

impl Default for GradAccumulation {
    fn default() -> Self {
        Self {
            name: "grad_accumulation".to_owned(),
            layers: 24,
            parameter_bytes: 28 << 20,
            activation_bytes: 48 << 20,
            micro_batches: 4,
            steps: 4,
            mistake: Mistake::None,
        }
    }
}

impl Workload for GradAccumulation {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        program.mark("init");
        for _ in 0..self.layers {
            let parameter = program.alloc(self.parameter_bytes, "parameter");
            program.hold(parameter);
        }
        let mut gradients = Vec::new();
        for step in 0..self.steps {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {step}"));
            let mut graphs = Vec::new();
            for _ in 0..self.micro_batches {
                let graph = self.forward(&mut program);
                if self.mistake == Mistake::LossesKept {
                    graphs.push(graph);
                } else {
                    self.backward(&mut program, graph, &mut gradients);
                }
            }
            // What was computed last is differentiated first.
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

/// What a micro-batch keeps for the way back.
struct Graph {
    activations: Vec<Tensor>,
    loss: Tensor,
}

impl GradAccumulation {
    fn validate(&self) -> Result<(), WorkloadError> {
        let live = self.layers.checked_mul(self.micro_batches.max(1));
        let reason = if self.parameter_bytes >= 1 << 58 || self.activation_bytes >= 1 << 58 {
            "parameter_bytes and activation_bytes must be below 2^58"
        } else if live.is_none_or(|live| live >= 1 << 24) {
            "layers times micro_batches must be below 2^24"
        } else {
            return Ok(());
        };
        Err(WorkloadError::Parameter {
            family: "grad_accumulation",
            reason: reason.to_owned(),
        })
    }

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

    /// Makes the gradients, or adds to those that are there.
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
                program.free(gradient); // added to the one that is there
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

    /// AdamW: two numbers of state for each parameter, and scratch for all of them at once.
    fn update(&self, program: &mut Program<'_>, is_first: bool) {
        program.mark("optimizer");
        if is_first {
            for _ in 0..2 * self.layers {
                let state = program.alloc(self.parameter_bytes, "zeros_like");
                program.hold(state);
            }
        }
        let denominators = (0..self.layers).map(|_| program.alloc(self.parameter_bytes, "sqrt"));
        let denominators: Vec<Tensor> = denominators.collect();
        program.free_all(denominators);
    }
}
