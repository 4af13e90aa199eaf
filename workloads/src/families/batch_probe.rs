//! The search for the largest batch that fits.
//!
//! The batch is doubled until the device is out of memory, then bisected between the last that fit and
//! the first that did not, as training frameworks do. A failed step frees everything it holds. The last
//! mark, `largest batch N`, has the answer, which [`LargestBatch`] reads.
//!
//! This shows the allocator at the limit of the device, where fragmentation reduces the answer. With the
//! defaults 42 samples fit into 8 GiB, and the search finds them if it empties the cache after a failure.
//! If not, blocks of the larger batch are split for the smaller one, the remainders are too small to use,
//! and the answer is 32. The program ends after the search.

use crate::families::parameters::below;
use crate::families::program::{Program, Tensor};
use crate::op::{Op, Sink, WorkloadError};
use crate::replay::{Observer, Step};

family! {
    /// A search for the largest batch that fits, by training steps of different batches.
    pub struct BatchProbe as "batch_probe" {
        /// Layers; below 2^16.
        pub layers: u64 [1..=below(16)] = 24,
        /// Bytes of a layer's parameters, of its gradients, and of each of two optimizer states.
        #[serde(with = "crate::families::byte_count")]
        pub parameter_bytes: u64 [1..=1 << 58] = 28 << 20,
        /// Bytes of a layer's activation per sample.
        #[serde(with = "crate::families::byte_count")]
        pub sample_bytes: u64 [1..=1 << 58] = 6 << 20,
        /// The largest batch to try, and so the answer on a roomy device.
        pub most: u64 = 100,
        /// Whether the program empties the cache after a failure.
        pub empty_cache: bool = true,
    }
    rules {
        "most": most => 1..=(1 << 58) / sample_bytes,
    }
}

/// The text before the answer in the last mark.
const ANSWER: &str = "largest batch ";

/// Reads the answer of a [`BatchProbe`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LargestBatch {
    /// Samples of the largest batch that fits, 0 if none does. `None` before the end.
    pub batch: Option<u64>,
}

impl Observer for LargestBatch {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if let Op::Mark { tag } = step.op
            && let Some(batch) = tag.strip_prefix(ANSWER)
        {
            self.batch = batch.parse().ok();
        }
        Ok(())
    }
}

impl BatchProbe {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        program.mark("init");
        let mut state = Vec::new();
        let fits = (0..3 * self.layers).all(|_| {
            let tensor = program.try_alloc(self.parameter_bytes, "parameter");
            tensor.map(|tensor| state.push(tensor)).is_some()
        });
        let largest = if fits { self.search(&mut program) } else { 0 };
        program.free_all(state);
        program.mark(&format!("{ANSWER}{largest}"));
        program.finish()
    }

    fn search(&self, program: &mut Program<'_>) -> u64 {
        let mut fits = 0;
        let mut fails = self.most + 1;
        while fits + 1 < fails && !program.is_over() {
            // Doubles until the first failure, then bisects.
            let is_bounded = fails <= self.most;
            let batch = if is_bounded {
                fits + (fails - fits) / 2
            } else {
                (2 * fits).clamp(1, self.most)
            };
            program.mark(&format!("batch {batch}"));
            if self.step(program, batch) {
                fits = batch;
            } else {
                fails = batch;
                if self.empty_cache {
                    program.empty_cache();
                }
            }
        }
        fits
    }

    /// Runs a step, frees everything, and returns whether the step fit.
    fn step(&self, program: &mut Program<'_>, batch: u64) -> bool {
        let mut activations = Vec::new();
        let mut gradients = Vec::new();
        let fits = self.try_step(program, batch, &mut activations, &mut gradients);
        program.free_all(activations);
        program.free_all(gradients);
        fits.is_some()
    }

    /// Runs a forward and a backward pass, or returns `None` as soon as memory runs out.
    fn try_step(
        &self,
        program: &mut Program<'_>,
        batch: u64,
        activations: &mut Vec<Tensor>,
        gradients: &mut Vec<Tensor>,
    ) -> Option<()> {
        let bytes = batch * self.sample_bytes;
        for _ in 0..self.layers {
            activations.push(program.try_alloc(bytes, "linear")?);
        }
        while let Some(activation) = activations.pop() {
            gradients.push(program.try_alloc(self.parameter_bytes, "mm")?);
            program.free(activation);
        }
        Some(())
    }
}
