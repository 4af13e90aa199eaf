//! Interleaved frees, which leave free memory in pieces.
//!
//! Each round allocates blocks of nearly one size, frees every k-th, requests some blocks that do not fit
//! the holes and some that do, and frees everything in random order. This shows the cost of holes between
//! live blocks. Nothing lives long, unlike in real programs.
//!
//! The default is the textbook case: ten tensors of 1024 × 1024 floats, every other one freed, then one of
//! 4096 × 4096. 20 MiB are free, and none of it can serve 64 MiB.

use crate::families::parameters::{MOST_BYTES, MOST_LIVE, below};
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};

family! {
    /// Every k-th block freed, then larger blocks requested.
    ///
    /// Default: the textbook case. Every other 4 MiB of 40 MiB is free, and 64 MiB are requested.
    pub struct Fragmentation as "fragmentation" {
        /// Blocks per round; `blocks`, `large` and `small` are each below 2^24.
        pub blocks: u64 [0..=MOST_LIVE] = 10,
        /// Bytes of a block; with `jitter` up to an eighth more.
        #[serde(with = "crate::families::byte_count")]
        pub bytes: u64 [1..=below(40)] = 4 << 20,
        /// Whether block sizes vary.
        pub jitter: bool = false,
        /// One block in this many is freed.
        pub every: u64 [1..=u64::MAX] = 2,
        /// Blocks of `large_bytes` requested afterwards, meant not to fit a hole.
        pub large: u64 [0..=MOST_LIVE] = 1,
        /// Bytes of a large block.
        #[serde(with = "crate::families::byte_count")]
        pub large_bytes: u64 [0..=MOST_BYTES] = 64 << 20,
        /// Blocks of half a hole requested afterwards.
        pub small: u64 [0..=MOST_LIVE] = 0,
        /// Rounds.
        pub rounds: u64 = 1,
        /// Seed of sizes and of the order of the last frees.
        pub seed: u64 = 0,
    }
}

impl Fragmentation {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        for round in 0..self.rounds {
            if !program.step(round) {
                break;
            }
            self.round(&mut program, &mut rng);
        }
        program.finish()
    }

    fn round(&self, program: &mut Program<'_>, rng: &mut Rng) {
        let mut kept: Vec<Tensor> = Vec::new();
        let mut holes: Vec<Tensor> = Vec::new();
        for block in 0..self.blocks {
            if program.is_over() {
                return;
            }
            let extra = if self.jitter { self.bytes / 8 } else { 0 };
            let tensor = program.alloc(self.bytes + rng.below(extra + 1), "empty");
            if block % self.every == 0 {
                holes.push(tensor);
            } else {
                kept.push(tensor);
            }
        }
        program.mark("free every other");
        program.free_all(holes);
        program.mark("big");
        for _ in 0..self.large {
            kept.push(program.alloc(self.large_bytes, "empty"));
        }
        for _ in 0..self.small {
            kept.push(program.alloc(self.bytes.div_ceil(2), "empty"));
        }
        if !program.is_over() {
            rng.shuffle(&mut kept);
        }
        program.free_all(kept);
    }
}
