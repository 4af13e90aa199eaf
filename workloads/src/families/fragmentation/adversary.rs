//! Robson's construction: as much memory as any allocator must waste that cannot move blocks.
//!
//! J. M. Robson proved (1971, 1974) that a program which never has more than M live, in blocks of
//! sizes 1, 2, 4, … n, can make every such allocator hold at least M (1 + ½ log2 n) − n + 1. In
//! round i it picks an offset and frees every block that does not cover an address with that offset
//! modulo 2^i. Each that stays denies a chunk of 2^i to the next blocks: all that was freed is asked
//! for again in blocks of 2^i, and few of them fit where something was.
//!
//! The program must know where its blocks lie, and a workload does not. It therefore keeps a model
//! of the allocator it is written against: best fit in one contiguous range, the lowest of equal
//! holes, and the range grows only if none fits. That is what expandable segments are for one pool;
//! the stream is the same for all, and against others it only misses.
//!
//! Against PyTorch's best fit with expandable segments the model is exact, and the bound is reached
//! to the page: with the defaults 104 MiB are reserved for 16 MiB, 6.500 M where the bound is 6.438 M;
//! in the large pool, with blocks from 2 MiB to 1 GiB, 179220 MiB for 32 GiB, 5.469 M where the bound
//! is 5.469 M. Without expandable segments it is 6.500 M and 5.625 M. It does not show the worst that
//! can be done to best fit, which Robson found later (1977) to be near M n; and no real program does
//! this.

mod contiguous;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use self::contiguous::Contiguous;
use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::{refuse, within};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, Workload, WorkloadError};

/// Robson's construction against best fit: no allocator that cannot move blocks does well.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Adversary {
    /// What it is called in results.
    pub name: String,
    /// Bytes of the smallest blocks, in which all others are counted.
    #[serde(with = "crate::families::byte_count")]
    pub unit_bytes: u64,
    /// Bytes that are live at most: so many units, less than 2^24.
    #[serde(with = "crate::families::byte_count")]
    pub live_bytes: u64,
    /// Rounds; in the last one blocks are of 2^rounds units.
    pub rounds: u64,
}

impl Default for Adversary {
    /// Up to the largest blocks of the small pool, 1 MiB.
    fn default() -> Self {
        Self {
            name: "adversary".to_owned(),
            unit_bytes: 512,
            live_bytes: 16 << 20,
            rounds: 11,
        }
    }
}

impl Adversary {
    /// What any allocator that cannot move blocks must hold at the least, in bytes; nothing if the
    /// parameters have no meaning.
    #[must_use]
    pub fn bound_bytes(&self) -> Option<u64> {
        self.validate().ok()?;
        let largest = self.unit_bytes << self.rounds;
        Some(self.live_bytes + self.live_bytes / 2 * self.rounds + self.unit_bytes - largest)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            "adversary",
            [
                ("unit_bytes", self.unit_bytes, 1..=1 << 36),
                ("live_bytes", self.live_bytes, self.unit_bytes..=MOST_BYTES),
                (
                    "live_bytes in units",
                    self.live_bytes / self.unit_bytes.max(1),
                    1..=MOST_LIVE,
                ),
                ("rounds", self.rounds, 1..=23),
            ],
        )?;
        if self.unit_bytes << self.rounds > self.live_bytes {
            let reason = "a block of the last round would be larger than live_bytes";
            return refuse("adversary", reason.to_owned());
        }
        Ok(())
    }
}

impl Workload for Adversary {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut attack = Attack {
            unit_bytes: self.unit_bytes,
            units: self.live_bytes / self.unit_bytes,
            range: Contiguous::default(),
            live: Vec::new(),
        };
        program.mark("step 0");
        attack.fill(&mut program, 1);
        let mut offset = 0;
        for round in 1..=self.rounds {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {round}"));
            let chunk = 1 << round;
            offset = attack.best_offset(offset, chunk);
            attack.free_all_but(&mut program, offset, chunk);
            attack.fill(&mut program, chunk);
        }
        program.free_all(attack.live.into_iter().map(|block| block.tensor));
        program.finish()
    }
}

/// A live block; in units.
struct Block {
    /// Where it lies, if the model is right.
    start: u64,
    len: u64,
    tensor: Tensor,
}

impl Block {
    /// Whether it covers an address that is `offset` modulo `chunk`.
    fn covers(&self, offset: u64, chunk: u64) -> bool {
        offset.wrapping_sub(self.start) % chunk < self.len
    }
}

/// The construction under way; in units.
struct Attack {
    unit_bytes: u64,
    /// What is live at most.
    units: u64,
    range: Contiguous,
    live: Vec<Block>,
}

impl Attack {
    /// Of the two offsets that are `before` modulo half a chunk, that for which the blocks which
    /// cover it deny the most memory.
    fn best_offset(&self, before: u64, chunk: u64) -> u64 {
        let denied = |offset: u64| -> u64 {
            let survivors = self.live.iter().filter(|block| block.covers(offset, chunk));
            survivors.map(|block| chunk - block.len).sum()
        };
        let other = before + chunk / 2;
        if denied(other) > denied(before) {
            other
        } else {
            before
        }
    }

    /// Frees every block that is not in the way of a chunk.
    fn free_all_but(&mut self, program: &mut Program<'_>, offset: u64, chunk: u64) {
        for block in std::mem::take(&mut self.live) {
            if block.covers(offset, chunk) {
                self.live.push(block);
            } else {
                self.range.free(block.start, block.len);
                program.free(block.tensor);
            }
        }
    }

    /// Allocates as many blocks of `len` as may be live.
    fn fill(&mut self, program: &mut Program<'_>, len: u64) {
        let live: u64 = self.live.iter().map(|block| block.len).sum();
        for _ in 0..(self.units - live) / len {
            if program.is_over() {
                return;
            }
            let start = self.range.place(len);
            let tensor = program.alloc(len * self.unit_bytes, "empty");
            self.live.push(Block { start, len, tensor });
        }
    }
}
