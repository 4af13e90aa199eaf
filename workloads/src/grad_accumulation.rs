//! Gradients added up over several micro-batches before each update, done right and with the common
//! mistakes.
//!
//! It shows memory that grows from step to step because somebody still holds it: gradients that are
//! never cleared stay for good, and with losses that are added up instead of their values the graph
//! of every micro-batch stays. It does not show fragmentation: all micro-batches are alike.

use crate::op::{Sink, Workload, WorkloadError};
use crate::program::{Program, Tensor};

/// Training steps of several micro-batches each, of a stack of equal layers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GradAccumulation {
    /// What it is called in results.
    pub name: String,
    /// Layers.
    pub layers: u64,
    /// Bytes of a layer's parameters, and of their gradients.
    pub parameter_bytes: u64,
    /// Bytes of an activation that a layer keeps for each micro-batch.
    pub activation_bytes: u64,
    /// Micro-batches before each update.
    pub micro_batches: u64,
    /// Updates.
    pub steps: u64,
    /// What the programmer got wrong.
    pub mistake: Mistake,
}

/// A mistake that costs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// None: gradients are given back after each update.
    None,
    /// Gradients are never cleared. They stay where they are, and go on being added to.
    NeverCleared,
    /// Losses are added up as tensors, so that the activations of all micro-batches of a step stay
    /// until the sum is forgotten.
    LossesKept,
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
                let graph = self.micro_batch(&mut program, &mut gradients);
                graphs.extend(graph);
            }
            self.update(&mut program, step == 0);
            if self.mistake != Mistake::NeverCleared {
                program.free_all(gradients.drain(..));
            }
            program.free_all(graphs);
        }
        program.free_all(gradients);
        program.finish()
    }
}

impl GradAccumulation {
    fn validate(&self) -> Result<(), WorkloadError> {
        if self.parameter_bytes < 1 << 58 && self.activation_bytes < 1 << 58 {
            return Ok(());
        }
        Err(WorkloadError::Parameter {
            family: "grad_accumulation",
            reason: "parameter_bytes and activation_bytes must be below 2^58".to_owned(),
        })
    }

    /// Forward and back; what is left of the graph if the loss is kept.
    fn micro_batch(&self, program: &mut Program<'_>, gradients: &mut Vec<Tensor>) -> Vec<Tensor> {
        program.mark("forward");
        let mut activations: Vec<Tensor> = Vec::new();
        for _ in 0..self.layers {
            activations.push(program.alloc(self.activation_bytes, "linear"));
            program.scratch(2 * self.activation_bytes, "gelu");
        }
        let loss = program.alloc(4, "mean");
        program.mark("backward");
        let mut flowing = program.alloc(self.activation_bytes, "mean_backward");
        let mut graph = Vec::new();
        let is_first = gradients.is_empty();
        while let Some(activation) = activations.pop() {
            flowing = program.replace(flowing, self.activation_bytes, "linear_backward");
            let gradient = program.alloc(self.parameter_bytes, "mm");
            if is_first {
                gradients.push(gradient);
            } else {
                program.free(gradient); // added to the one that is there
            }
            if self.mistake == Mistake::LossesKept {
                graph.push(activation);
            } else {
                program.free(activation);
            }
        }
        program.free(flowing);
        if self.mistake == Mistake::LossesKept {
            graph.push(loss);
        } else {
            program.free(loss);
        }
        graph
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
