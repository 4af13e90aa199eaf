//! A sawtooth: memory fills up to a peak and empties to a floor, each time with another size.
//!
//! All blocks of a tooth have one size, that of its batch; those that stay when it falls are
//! scattered. It shows what a size that changes costs when the peak never does: blocks that were
//! cut for one tooth are too small, or too large by a bit, for the next. It does not show sizes that
//! differ at one time.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::within;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};

/// Up to a peak and down to a floor, each time with blocks of another size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Sawtooth {
    /// What it is called in results.
    pub name: String,
    /// Bytes that are live at the top of a tooth at most.
    #[serde(with = "crate::families::byte_count")]
    pub peak_bytes: u64,
    /// Bytes that are live between teeth at most.
    #[serde(with = "crate::families::byte_count")]
    pub floor_bytes: u64,
    /// Bytes of a block at least; the peak has room for less than 2^24 of them.
    #[serde(with = "crate::families::byte_count")]
    pub min_bytes: u64,
    /// Bytes of a block at most.
    #[serde(with = "crate::families::byte_count")]
    pub max_bytes: u64,
    /// Times up and down.
    pub teeth: u64,
    /// Determines sizes, and which blocks stay.
    pub seed: u64,
}

impl Default for Sawtooth {
    fn default() -> Self {
        Self {
            name: "sawtooth".to_owned(),
            peak_bytes: 2 << 30,
            floor_bytes: 128 << 20,
            min_bytes: 2 << 20,
            max_bytes: 48 << 20,
            teeth: 40,
            seed: 3,
        }
    }
}

impl Sawtooth {
    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            "sawtooth",
            [
                ("peak_bytes", self.peak_bytes, 1..=MOST_BYTES),
                ("floor_bytes", self.floor_bytes, 0..=self.peak_bytes),
                ("min_bytes", self.min_bytes, 1..=MOST_BYTES),
                ("max_bytes", self.max_bytes, self.min_bytes..=MOST_BYTES),
                (
                    "peak_bytes over min_bytes",
                    self.peak_bytes / self.min_bytes.max(1),
                    0..=MOST_LIVE,
                ),
            ],
        )
    }
}

impl Workload for Sawtooth {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut live: Vec<Tensor> = Vec::new();
        let mut live_bytes = 0;
        for tooth in 0..self.teeth {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {tooth}"));
            let bytes = rng.between(self.min_bytes, self.max_bytes);
            while live_bytes + bytes <= self.peak_bytes && !program.is_over() {
                live.push(program.alloc(bytes, "empty"));
                live_bytes += bytes;
            }
            program.mark("fall");
            rng.shuffle(&mut live);
            while live_bytes > self.floor_bytes
                && let Some(tensor) = live.pop()
            {
                live_bytes -= tensor.bytes();
                program.free(tensor);
            }
        }
        program.free_all(live);
        program.finish()
    }
}
