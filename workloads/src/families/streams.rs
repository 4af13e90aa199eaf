//! Batches copied in on side streams ahead of time, while the default stream computes.
//!
//! A batch belongs to the stream that copies it, and the program says that the default stream uses
//! it, too (`record_stream`). When it gives the batch back, the device has not yet come to that
//! work: the block waits for an event, and cannot be used again before. It shows what memory costs
//! that is free to the program but not to the device, and that streams do not share. It does not
//! show when events really complete: here the device is always as many batches behind.

use std::collections::VecDeque;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use crate::families::parameters::within;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};
use crate::surroundings::Change;

/// Batches copied in on side streams ahead of time; the device is some batches behind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Streams {
    /// What it is called in results.
    pub name: String,
    /// Batches.
    pub batches: u64,
    /// Side streams, which copy batches in turns; below 2^10.
    pub streams: u64,
    /// Batches that are copied ahead; below 2^10.
    pub ahead: u64,
    /// Batches by which the device is behind the program; below 2^10.
    pub lag: u64,
    /// Tensors of a batch; below 2^10.
    pub tensors: u64,
    /// Bytes of such a tensor at least.
    #[serde(with = "crate::families::byte_count")]
    pub min_bytes: u64,
    /// Bytes of such a tensor at most.
    #[serde(with = "crate::families::byte_count")]
    pub max_bytes: u64,
    /// Tensors that are computed from a batch, on the default stream; below 2^16.
    pub activations: u64,
    /// Bytes of each.
    #[serde(with = "crate::families::byte_count")]
    pub activation_bytes: u64,
    /// Determines sizes.
    pub seed: u64,
}

impl Default for Streams {
    /// Half-precision images of 224 × 224 and their like.
    fn default() -> Self {
        Self {
            name: "streams".to_owned(),
            batches: 200,
            streams: 1,
            ahead: 2,
            lag: 4,
            tensors: 2,
            min_bytes: 16 << 20,
            max_bytes: 40 << 20,
            activations: 16,
            activation_bytes: 24 << 20,
            seed: 6,
        }
    }
}

/// The stream that computes.
const COMPUTE: u32 = 0;

impl Streams {
    fn validate(&self) -> Result<(), WorkloadError> {
        const FEW: u64 = (1 << 10) - 1;
        within(
            "streams",
            [
                ("streams", self.streams, 1..=FEW),
                ("ahead", self.ahead, 0..=FEW),
                ("lag", self.lag, 0..=FEW),
                ("tensors", self.tensors, 1..=FEW),
                ("min_bytes", self.min_bytes, 1..=1 << 58),
                ("max_bytes", self.max_bytes, self.min_bytes..=1 << 58),
                ("activations", self.activations, 0..=(1 << 16) - 1),
                ("activation_bytes", self.activation_bytes, 1..=1 << 58),
            ],
        )
    }

    /// Copies a batch in.
    fn copy(&self, program: &mut Program<'_>, rng: &mut Rng, batch: u64) -> Vec<Tensor> {
        let stream = 1 + (batch % self.streams) as u32;
        let tensors = (0..self.tensors).map(|_| {
            let bytes = rng.between(self.min_bytes, self.max_bytes);
            program.alloc_on(stream, bytes, "_to_copy")
        });
        tensors.collect()
    }

    /// Computes with a batch and gives it back.
    fn compute(&self, program: &mut Program<'_>, batch: Vec<Tensor>) {
        for tensor in &batch {
            program.record_stream(tensor, COMPUTE);
        }
        let activations = (0..self.activations).map(|_| program.alloc(self.activation_bytes, "mm"));
        let activations: Vec<Tensor> = activations.collect();
        program.free_all(activations.into_iter().rev());
        program.free_all(batch);
    }
}

impl Workload for Streams {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut copied: VecDeque<Vec<Tensor>> = VecDeque::new();
        let mut next = 0;
        program.around(Change::HoldEvents(true));
        for batch in 0..self.batches {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {batch}"));
            while next < self.batches && next <= batch + self.ahead {
                copied.push_back(self.copy(&mut program, &mut rng, next));
                next += 1;
            }
            if let Some(tensors) = copied.pop_front() {
                self.compute(&mut program, tensors);
            }
            // An event for each tensor of the batch: that of so many batches ago is over.
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
