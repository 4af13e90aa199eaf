//! A comb: gaps between long-lived blocks.
//!
//! Each round allocates teeth and gaps alternately and frees the gaps. The gaps of the next round are
//! slightly larger and fit none of the old ones; nor do the teeth, which are larger still. Real programs
//! do this when they keep a result and use a growing buffer in each step. The cache holds much free
//! memory and can serve no request: reserved memory beyond the requested grows with the square of the
//! rounds. Gaps of mixed sizes and small teeth, which would fit old gaps, are not covered.

use crate::families::parameters::{MOST_BYTES, MOST_LIVE, refuse};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Gaps between long-lived blocks, requested again slightly larger.
    pub struct Comb as "comb" {
        /// Teeth per round, with as many gaps; fewer than 2^24 in all rounds together.
        pub teeth: u64 [1..=MOST_LIVE] = 16,
        /// Bytes of a tooth, which lives until the end.
        #[serde(with = "crate::families::byte_count")]
        pub tooth_bytes: u64 [1..=MOST_BYTES] = 16 << 20,
        /// Bytes of a gap in the first round.
        #[serde(with = "crate::families::byte_count")]
        pub gap_bytes: u64 [1..=MOST_BYTES] = 2 << 20,
        /// Bytes that gaps grow by from round to round.
        #[serde(with = "crate::families::byte_count")]
        pub growth_bytes: u64 = 1 << 20,
        /// Rounds.
        pub rounds: u64 [1..=MOST_LIVE] = 14,
    }
    rules {
        "teeth times rounds": teeth * rounds => 1..=MOST_LIVE,
    }
}

impl Comb {
    fn last_gap(&self) -> Option<u64> {
        let grown = self.growth_bytes.checked_mul(self.rounds - 1)?;
        self.gap_bytes.checked_add(grown)
    }

    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        if self.last_gap().is_none_or(|gap| gap > MOST_BYTES) {
            return refuse("comb", "the last gap would have 2^60 bytes or more");
        }
        let mut program = Program::new(sink);
        for round in 0..self.rounds {
            if !program.step(round) {
                break;
            }
            let gap_bytes = self.gap_bytes + round * self.growth_bytes;
            let mut gaps: Vec<Tensor> = Vec::new();
            for _ in 0..self.teeth {
                let tooth = program.alloc(self.tooth_bytes, "tooth");
                program.hold(tooth);
                gaps.push(program.alloc(gap_bytes, "gap"));
            }
            program.free_all(gaps);
        }
        program.finish()
    }
}
