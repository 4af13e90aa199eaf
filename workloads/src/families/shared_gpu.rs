//! A training loop on a GPU shared with other processes.
//!
//! Other processes come and go, each with a fixed amount of memory, and the program's steps vary in size.
//! This shows the cost of cached memory: when a neighbour arrives, requests fail and the cache must be
//! flushed. On a roomy device there is no effect. Neighbours always get their memory, even beyond the
//! device's capacity; they never fail because of the program.

use crate::families::parameters::below;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};
use crate::surroundings::Change;

family! {
    /// A training loop on a GPU whose other processes allocate and free memory.
    pub struct SharedGpu as "shared_gpu" {
        /// Other processes; below 2^10.
        pub neighbours: u64 [0..=below(10)] = 2,
        /// Bytes of each process while it is present.
        #[serde(with = "crate::families::byte_count")]
        pub neighbour_bytes: u64 [0..=1 << 48] = 1 << 30,
        /// Average number of steps until a neighbour comes or goes.
        pub stay: u64 [1..=1 << 32] = 10,
        /// Layers; below 2^16.
        pub layers: u64 [1..=below(16)] = 24,
        /// Bytes of a layer's parameters, and of its gradients.
        #[serde(with = "crate::families::byte_count")]
        pub parameter_bytes: u64 [1..=1 << 58] = 28 << 20,
        /// Fewest bytes of a layer's activation.
        #[serde(with = "crate::families::byte_count")]
        pub min_activation_bytes: u64 = 24 << 20,
        /// Most bytes of a layer's activation; all layers of a step have the same size.
        #[serde(with = "crate::families::byte_count")]
        pub max_activation_bytes: u64 [1..=1 << 58] = 96 << 20,
        /// Training steps.
        pub steps: u64 = 60,
        /// Seed of sizes, and of when neighbours come and go.
        pub seed: u64 = 7,
    }
    rules {
        "min_activation_bytes": min_activation_bytes => 1..=max_activation_bytes,
    }
}

impl SharedGpu {
    /// A forward pass, a backward pass and an optimizer step.
    fn step(&self, program: &mut Program<'_>, activation_bytes: u64) {
        program.mark("forward");
        let activations: Vec<Tensor> = (0..self.layers)
            .map(|_| {
                let activation = program.alloc(activation_bytes, "linear");
                program.scratch(activation_bytes, "gelu");
                activation
            })
            .collect();
        program.mark("backward");
        let mut flowing = program.alloc(activation_bytes, "mean_backward");
        let mut gradients: Vec<Tensor> = Vec::new();
        for activation in activations.into_iter().rev() {
            flowing = program.replace(flowing, activation_bytes, "linear_backward");
            gradients.push(program.alloc(self.parameter_bytes, "mm"));
            program.free(activation);
        }
        program.free(flowing);
        program.mark("optimizer");
        program.free_all(gradients);
    }

    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        program.mark("init");
        for _ in 0..self.layers {
            let parameter = program.alloc(self.parameter_bytes, "parameter");
            program.hold(parameter);
        }
        let mut is_present = vec![false; self.neighbours as usize];
        for step in 0..self.steps {
            if !program.step(step) {
                break;
            }
            for is_present in &mut is_present {
                *is_present ^= rng.happens(1, self.stay);
            }
            let present = is_present.iter().filter(|is_present| **is_present).count() as u64;
            program.around(Change::Foreign {
                bytes: present * self.neighbour_bytes,
            });
            let bytes = rng.between(self.min_activation_bytes, self.max_activation_bytes);
            self.step(&mut program, bytes);
        }
        program.around(Change::Foreign { bytes: 0 });
        program.finish()
    }
}
