//! Interleaved frees: memory is free but in pieces.
//!
//! Rounds of: fill with blocks of nearly one size, free every k-th, ask for blocks that do not fit
//! the holes and for some that do, free everything in a random order. It shows what a hole between
//! survivors costs. It does not show lifetimes of a real program: nothing is kept for long.
//!
//! The textbook case, its default: ten tensors of 1024 × 1024 floats, every other
//! one freed, then one of 4096 × 4096. 20 MiB are free, none of it usable for 64 MiB.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};

/// Rounds of interleaved frees.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Fragmentation {
    /// What it is called in results.
    pub name: String,
    /// Blocks to fill with. This many, `large` and `small` are live at once: each below 2^24.
    pub blocks: u64,
    /// Bytes of a block at least; at most an eighth more, if `jitter` is set.
    #[serde(with = "crate::families::byte_count")]
    pub bytes: u64,
    /// Whether the sizes of blocks differ.
    pub jitter: bool,
    /// Every how many blocks one is freed.
    pub every: u64,
    /// Blocks asked for afterwards that are larger than a hole.
    pub large: u64,
    /// Their bytes.
    #[serde(with = "crate::families::byte_count")]
    pub large_bytes: u64,
    /// Blocks asked for afterwards that are half a hole.
    pub small: u64,
    /// Rounds.
    pub rounds: u64,
    /// Determines sizes and the order of the last frees.
    pub seed: u64,
}

impl Default for Fragmentation {
    /// The case that articles on fragmentation begin with: in 40 MiB every other 4 MiB free, and
    /// 64 MiB wanted.
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

impl Fragmentation {
    fn validate(&self) -> Result<(), WorkloadError> {
        let counts = [
            ("blocks", self.blocks),
            ("large", self.large),
            ("small", self.small),
        ];
        let too_many = counts.into_iter().find(|(_, count)| *count >= 1 << 24);
        let reason = if let Some((name, count)) = too_many {
            format!("{name} is {count}; it must be below 2^24")
        } else if !(1..1 << 40).contains(&self.bytes) {
            format!(
                "bytes is {}; it must be at least 1 and below 2^40",
                self.bytes
            )
        } else if self.large_bytes >= 1 << 60 {
            format!("large_bytes is {}; it must be below 2^60", self.large_bytes)
        } else if self.every == 0 {
            "every is 0; it must be at least 1".to_owned()
        } else {
            return Ok(());
        };
        Err(WorkloadError::Parameter {
            family: "fragmentation",
            reason,
        })
    }
}

impl Workload for Fragmentation {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        for round in 0..self.rounds {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {round}"));
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
        rng.shuffle(&mut kept);
        program.free_all(kept);
    }
}
