//! A few blocks of many live on, and pin what they lie in.
//!
//! Each generation fills memory and goes, but for one block in so many, which stays for some
//! generations: a result that was kept, a cached shape, a leak. A segment with one of them in it
//! cannot be returned and serves only what fits beside it. So emptying the cache, which follows each
//! generation if asked for, gives back less than what is free. It does not show survivors that could
//! be told from the rest by size or by who asked.

use std::collections::VecDeque;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::within;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};

/// A few blocks of many live on, and pin what they lie in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Survivors {
    /// What it is called in results.
    pub name: String,
    /// Blocks of a generation; times `lifetime` below 2^24.
    pub blocks: u64,
    /// Bytes of a block at least.
    #[serde(with = "crate::families::byte_count")]
    pub min_bytes: u64,
    /// Bytes of a block at most.
    #[serde(with = "crate::families::byte_count")]
    pub max_bytes: u64,
    /// Every how many blocks one survives its generation.
    pub every: u64,
    /// Generations after which survivors go, too.
    pub lifetime: u64,
    /// Whether the cache is emptied after each generation.
    pub empty_cache: bool,
    /// Bytes of a block that is wanted for a moment after each generation; 0 for none.
    #[serde(with = "crate::families::byte_count")]
    pub large_bytes: u64,
    /// Generations.
    pub generations: u64,
    /// Determines sizes.
    pub seed: u64,
}

impl Default for Survivors {
    fn default() -> Self {
        Self {
            name: "survivors".to_owned(),
            blocks: 200,
            min_bytes: 1 << 20,
            max_bytes: 6 << 20,
            every: 10,
            lifetime: 4,
            empty_cache: true,
            large_bytes: 512 << 20,
            generations: 40,
            seed: 4,
        }
    }
}

impl Survivors {
    fn validate(&self) -> Result<(), WorkloadError> {
        let live = self.blocks.saturating_mul(self.lifetime.saturating_add(1));
        within(
            "survivors",
            [
                ("blocks", self.blocks, 1..=MOST_LIVE),
                ("blocks times one more than lifetime", live, 0..=MOST_LIVE),
                ("min_bytes", self.min_bytes, 1..=MOST_BYTES),
                ("max_bytes", self.max_bytes, self.min_bytes..=MOST_BYTES),
                ("every", self.every, 1..=u64::MAX),
                ("large_bytes", self.large_bytes, 0..=MOST_BYTES),
            ],
        )
    }
}

impl Workload for Survivors {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let mut survivors: VecDeque<Vec<Tensor>> = VecDeque::new();
        for generation in 0..self.generations {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {generation}"));
            let (mut staying, mut going) = (Vec::new(), Vec::new());
            for block in 0..self.blocks {
                let bytes = rng.between(self.min_bytes, self.max_bytes);
                let stays = (block + 1).is_multiple_of(self.every);
                let tensors = if stays { &mut staying } else { &mut going };
                tensors.push(program.alloc(bytes, if stays { "kept" } else { "empty" }));
            }
            program.free_all(going);
            survivors.push_back(staying);
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
