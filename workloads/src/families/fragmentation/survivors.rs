//! A few blocks outlive the rest and pin their segments.
//!
//! Each generation fills memory and is freed, except for every n-th block, which survives some
//! generations: a result, a cached shape, a leak. A segment with a survivor cannot be returned to the
//! device and serves only what fits beside it, so `empty_cache` returns less than the free memory.
//! Survivors have the sizes of other blocks; an allocator cannot recognise them.

use std::collections::VecDeque;

use crate::families::parameters::{MOST_BYTES, MOST_LIVE};
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};

family! {
    /// A few blocks outlive the rest and pin their segments.
    pub struct Survivors as "survivors" {
        /// Blocks of a generation; times `lifetime` + 1 below 2^24.
        pub blocks: u64 [1..=MOST_LIVE] = 200,
        /// Fewest bytes of a block.
        #[serde(with = "crate::families::byte_count")]
        pub min_bytes: u64 [1..=MOST_BYTES] = 1 << 20,
        /// Most bytes of a block.
        #[serde(with = "crate::families::byte_count")]
        pub max_bytes: u64 = 6 << 20,
        /// One block in this many survives its generation.
        pub every: u64 [1..=u64::MAX] = 10,
        /// Generations after which survivors are freed.
        pub lifetime: u64 = 4,
        /// Whether the program empties the cache after each generation.
        pub empty_cache: bool = true,
        /// Bytes of a short-lived block after each generation; 0 for none.
        #[serde(with = "crate::families::byte_count")]
        pub large_bytes: u64 [0..=MOST_BYTES] = 512 << 20,
        /// Generations.
        pub generations: u64 = 40,
        /// Seed of sizes.
        pub seed: u64 = 4,
    }
    rules {
        "blocks times (lifetime + 1)": blocks.saturating_mul(lifetime.saturating_add(1)) => 0..=MOST_LIVE,
        "max_bytes": max_bytes => min_bytes..=MOST_BYTES,
    }
}

impl Survivors {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut survivors: VecDeque<Vec<Tensor>> = VecDeque::new();
        for generation in 0..self.generations {
            if !program.step(generation) {
                break;
            }
            let (mut kept, mut freed) = (Vec::new(), Vec::new());
            for block in 0..self.blocks {
                let bytes = rng.between(self.min_bytes, self.max_bytes);
                let survives = (block + 1).is_multiple_of(self.every);
                let tensors = if survives { &mut kept } else { &mut freed };
                tensors.push(program.alloc(bytes, if survives { "kept" } else { "empty" }));
            }
            program.free_all(freed);
            survivors.push_back(kept);
            if survivors.len() as u64 > self.lifetime {
                program.free_all(survivors.pop_front().into_iter().flatten());
            }
            if self.empty_cache {
                program.empty_cache();
            }
            if self.large_bytes > 0 {
                program.mark("big");
                program.scratch(self.large_bytes, "empty");
            }
        }
        program.free_all(survivors.into_iter().flatten());
        program.finish()
    }
}
