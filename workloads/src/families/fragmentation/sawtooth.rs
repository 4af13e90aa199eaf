//! A sawtooth: memory fills to a peak and empties to a floor, each time with another block size.
//!
//! All blocks of a tooth have one size, which depends on its batch; the survivors of its fall are
//! scattered. This shows the cost of a changing size under a constant peak: blocks split for one tooth
//! are too small, or slightly too large, for the next. Different sizes at the same time are not covered.

use crate::families::parameters::{MOST_BYTES, MOST_LIVE};
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};

family! {
    /// Memory fills to a peak and empties to a floor, each time with another block size.
    pub struct Sawtooth as "sawtooth" {
        /// Most live bytes at the top of a tooth.
        #[serde(with = "crate::families::byte_count")]
        pub peak_bytes: u64 [1..=MOST_BYTES] = 2 << 30,
        /// Most live bytes between teeth.
        #[serde(with = "crate::families::byte_count")]
        pub floor_bytes: u64 = 128 << 20,
        /// Fewest bytes of a block; the peak holds fewer than 2^24 of them.
        #[serde(with = "crate::families::byte_count")]
        pub min_bytes: u64 [1..=MOST_BYTES] = 2 << 20,
        /// Most bytes of a block.
        #[serde(with = "crate::families::byte_count")]
        pub max_bytes: u64 = 48 << 20,
        /// Teeth.
        pub teeth: u64 = 40,
        /// Seed of sizes, and of which blocks survive.
        pub seed: u64 = 3,
    }
    rules {
        "floor_bytes": floor_bytes => 0..=peak_bytes,
        "max_bytes": max_bytes => min_bytes..=MOST_BYTES,
        "peak_bytes over min_bytes": peak_bytes / min_bytes => 0..=MOST_LIVE,
    }
}

impl Sawtooth {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut live: Vec<Tensor> = Vec::new();
        let mut live_bytes = 0;
        for tooth in 0..self.teeth {
            if !program.step(tooth) {
                break;
            }
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
