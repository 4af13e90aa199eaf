//! Batches prefetched on side streams while the default stream computes.
//!
//! A batch belongs to the stream that copies it, and `record_stream` records that the default stream
//! uses it, too. When the program frees the batch, the device has not reached that work yet, so the block
//! waits for an event before it can be reused. This shows the cost of memory that the program has freed
//! but the device still uses, and that streams do not share blocks. The device always lags by the same
//! number of batches; real completion times vary.

use std::collections::VecDeque;

use crate::families::parameters::below;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};
use crate::surroundings::Change;

family! {
    /// Batches prefetched on side streams, with a device that lags behind the program.
    ///
    /// Default: half-precision images of about 224 × 224.
    pub struct Streams as "streams" {
        /// Batches.
        pub batches: u64 = 200,
        /// Side streams, which copy batches in turn; below 2^10.
        pub streams: u64 [1..=below(10)] = 1,
        /// Batches copied ahead; below 2^10.
        pub ahead: u64 [0..=below(10)] = 2,
        /// Batches by which the device lags behind the program; below 2^10.
        pub lag: u64 [0..=below(10)] = 4,
        /// Tensors of a batch; below 2^10.
        pub tensors: u64 [1..=below(10)] = 2,
        /// Fewest bytes of a tensor of a batch.
        #[serde(with = "crate::families::byte_count")]
        pub min_bytes: u64 [1..=1 << 58] = 16 << 20,
        /// Most bytes of a tensor of a batch.
        #[serde(with = "crate::families::byte_count")]
        pub max_bytes: u64 = 40 << 20,
        /// Tensors computed from a batch on the default stream; below 2^16.
        pub activations: u64 [0..=below(16)] = 16,
        /// Bytes of an activation.
        #[serde(with = "crate::families::byte_count")]
        pub activation_bytes: u64 [1..=1 << 58] = 24 << 20,
        /// Seed of sizes.
        pub seed: u64 = 6,
    }
    rules {
        "max_bytes": max_bytes => min_bytes..=1 << 58,
    }
}

/// The stream that computes.
const COMPUTE: u32 = 0;

impl Streams {
    /// Copies a batch to the device.
    fn copy(&self, program: &mut Program<'_>, rng: &mut Rng, batch: u64) -> Vec<Tensor> {
        let stream = 1 + (batch % self.streams) as u32;
        let tensors = (0..self.tensors).map(|_| {
            let bytes = rng.between(self.min_bytes, self.max_bytes);
            program.alloc_on(stream, bytes, "_to_copy")
        });
        tensors.collect()
    }

    /// Computes with a batch and frees it.
    fn compute(&self, program: &mut Program<'_>, batch: Vec<Tensor>) {
        for tensor in &batch {
            program.record_stream(tensor, COMPUTE);
        }
        let activations: Vec<Tensor> = (0..self.activations)
            .map(|_| program.alloc(self.activation_bytes, "mm"))
            .collect();
        program.free_all(activations.into_iter().rev());
        program.free_all(batch);
    }

    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut copied: VecDeque<Vec<Tensor>> = VecDeque::new();
        let mut next = 0;
        program.around(Change::HoldEvents(true));
        for batch in 0..self.batches {
            if !program.step(batch) {
                break;
            }
            while next < self.batches && next <= batch + self.ahead {
                copied.push_back(self.copy(&mut program, &mut rng, next));
                next += 1;
            }
            if let Some(tensors) = copied.pop_front() {
                self.compute(&mut program, tensors);
            }
            // Completes the events of the batch `lag` batches ago, one per tensor.
            if batch >= self.lag {
                program.around(Change::FinishEvents {
                    stream: COMPUTE,
                    count: self.tensors,
                });
            }
        }
        program.around(Change::FinishEvents {
            stream: COMPUTE,
            count: u64::MAX,
        });
        program.around(Change::HoldEvents(false));
        program.free_all(copied.into_iter().flatten());
        program.finish()
    }
}
