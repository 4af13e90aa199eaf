//! Robson's construction: the memory that every allocator wastes that cannot move blocks.
//!
//! J. M. Robson proved (1971, 1974) that a program with at most M live, in blocks of sizes 1, 2, 4, … n,
//! can force every such allocator to hold at least M (1 + ½ log2 n) − n + 1. In round i it picks an
//! offset and frees every block that does not cover an address with that offset modulo 2^i. Each
//! remaining block denies a chunk of 2^i: the freed memory is requested again in blocks of 2^i, and few
//! of them fit.
//!
//! The construction needs the addresses of its blocks, which a workload does not know. It models the
//! allocator that it targets: best fit in one contiguous range, the lowest of equal holes, and growth
//! only if no hole fits. This is how expandable segments serve one pool. The operations are the same for
//! all allocators, and merely less effective against others.
//!
//! Against PyTorch's best fit with expandable segments the model is exact, and the bound is reached up to
//! one page: the defaults reserve 104 MiB for 16 MiB, 6.500 M with a bound of 6.438 M; in the large
//! pool, blocks from 2 MiB to 1 GiB reserve 179220 MiB for 32 GiB, 5.469 M with a bound of 5.469 M.
//! Without expandable segments it is 6.500 M and 5.625 M. The worst case of best fit is higher: Robson
//! (1977) found it near M n. No real program does this.

mod contiguous;

use self::contiguous::Contiguous;
use crate::families::parameters::{MOST_BYTES, MOST_LIVE, refuse_if};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Robson's construction against best fit, a worst case for every allocator that cannot move blocks.
    ///
    /// Default: up to the largest blocks of the small pool, 1 MiB.
    pub struct Adversary as "adversary" {
        /// Bytes of the smallest block, the unit of all sizes.
        #[serde(with = "crate::families::byte_count")]
        pub unit_bytes: u64 [1..=1 << 36] = 512,
        /// Most live bytes; fewer than 2^24 units.
        #[serde(with = "crate::families::byte_count")]
        pub live_bytes: u64 = 16 << 20,
        /// Rounds; the blocks of the last one have 2^rounds units.
        pub rounds: u64 [1..=23] = 11,
    }
    rules {
        "live_bytes": live_bytes => unit_bytes..=MOST_BYTES,
        "live_bytes in units": live_bytes / unit_bytes => 1..=MOST_LIVE,
    }
}

impl Adversary {
    /// Robson's bound: the bytes that every allocator must hold that cannot move blocks. `None` if the
    /// parameters are invalid.
    #[must_use]
    pub fn bound_bytes(&self) -> Option<u64> {
        self.validate().ok()?;
        let largest = self.unit_bytes << self.rounds;
        Some(self.live_bytes + self.live_bytes / 2 * self.rounds + self.unit_bytes - largest)
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        self.check()?;
        let is_too_large = self.unit_bytes << self.rounds > self.live_bytes;
        let reason = "a block of the last round would be larger than live_bytes";
        refuse_if("adversary", [(is_too_large, reason)])
    }

    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
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
            if !program.step(round) {
                break;
            }
            let chunk = 1 << round;
            offset = attack.best_offset(offset, chunk);
            attack.free_all_but(&mut program, offset, chunk);
            attack.fill(&mut program, chunk);
        }
        program.free_all(attack.live.into_iter().map(|block| block.tensor));
        program.finish()
    }
}

/// A live block. All fields in units.
struct Block {
    /// Its address, if the model is right.
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

/// The state of the construction, in units.
struct Attack {
    unit_bytes: u64,
    /// Most live units.
    units: u64,
    range: Contiguous,
    live: Vec<Block>,
}

impl Attack {
    /// Returns the better of the two offsets that are `before` modulo half a chunk: the one whose
    /// covering blocks deny the most memory.
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

    /// Frees every block that does not cover `offset` modulo `chunk`.
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

    /// Allocates blocks of `len` up to the limit of live units.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Answer, Op};

    /// The better of the offsets 0 and 2 modulo 4, if blocks of one unit live at these places.
    fn best_offset(starts: &[u64]) -> u64 {
        let mut sink = |_: Op<'_>| Ok(Answer::Done);
        let mut program = Program::new(&mut sink);
        let live = starts.iter().map(|&start| Block {
            start,
            len: 1,
            tensor: program.alloc(1, "empty"),
        });
        let attack = Attack {
            unit_bytes: 1,
            units: 9,
            range: Contiguous::default(),
            live: live.collect(),
        };
        attack.best_offset(0, 4)
    }

    #[test]
    fn the_offset_that_more_blocks_cover_is_better() {
        assert_eq!(best_offset(&[0, 2, 6]), 2);
        assert_eq!(best_offset(&[0, 4, 6]), 0);
        assert_eq!(best_offset(&[0, 2]), 0);
        assert_eq!(best_offset(&[1, 3, 5]), 0);
    }
}
