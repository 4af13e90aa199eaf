//! Interleaved frees, which leave free memory in pieces.
//!
//! Each round allocates blocks of nearly one size, frees every k-th, requests some blocks that do not fit
//! the holes and some that do, and frees everything in random order. This shows the cost of holes between
//! live blocks. Nothing lives long, unlike in real programs.
//!
//! The default is the textbook case: ten tensors of 1024 × 1024 floats, every other one freed, then one of
//! 4096 × 4096. 20 MiB are free, and none of it can serve 64 MiB.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use crate::families::parameters::{MOST_BYTES, MOST_LIVE, below, within};
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};

/// Every k-th block freed, then larger blocks requested.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Fragmentation {
    /// Name in results.
    pub name: String,
    /// Blocks per round; `blocks`, `large` and `small` are each below 2^24.
    pub blocks: u64,
    /// Bytes of a block; with `jitter` up to an eighth more.
    #[serde(with = "crate::families::byte_count")]
    pub bytes: u64,
    /// Whether block sizes vary.
    pub jitter: bool,
    /// One block in this many is freed.
    pub every: u64,
    /// Blocks of `large_bytes` requested afterwards, meant not to fit a hole.
    pub large: u64,
    /// Bytes of a large block.
    #[serde(with = "crate::families::byte_count")]
    pub large_bytes: u64,
    /// Blocks of half a hole requested afterwards.
    pub small: u64,
    /// Rounds.
    pub rounds: u64,
    /// Seed of sizes and of the order of the last frees.
    pub seed: u64,
}

impl Default for Fragmentation {
    /// The textbook case: every other 4 MiB of 40 MiB is free, and 64 MiB are requested.
    fn default() -> Self {
        Self {
            name: "fragmentation".to_owned(),
            blocks: 10,
            bytes: 4 << 20,
            jitter: false,
            every: 2,
            large: 1,
            large_bytes: 64 << 20,
            small: 0,
            rounds: 1,
            seed: 0,
        }
    }
}

impl Workload for Fragmentation {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        within(
            "fragmentation",
            [
                ("blocks", self.blocks, 0..=MOST_LIVE),
                ("bytes", self.bytes, 1..=below(40)),
                ("every", self.every, 1..=u64::MAX),
                ("large", self.large, 0..=MOST_LIVE),
                ("large_bytes", self.large_bytes, 0..=MOST_BYTES),
                ("small", self.small, 0..=MOST_LIVE),
            ],
        )?;
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
}

impl Fragmentation {
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
