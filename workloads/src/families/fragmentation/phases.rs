//! Two phases with different block sizes, one live at a time.
//!
//! Training and evaluation, or prefill and decoding: each phase allocates its blocks and frees them all
//! before the other begins. This shows how much memory of one phase can serve the other. The order
//! matters: large blocks can be split, but small blocks in different segments cannot be coalesced. With
//! small blocks first, memory for both phases is reserved; with large blocks first, memory for one.
//! Allocations that live through both phases are not covered.

use serde::{Deserialize, Serialize};

use crate::families::parameters::{MOST_BYTES, MOST_LIVE};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Two alternating phases with different block sizes, in either order.
    ///
    /// Default: the same number of bytes in both phases, 60 × 12 MiB and 12 × 60 MiB.
    pub struct Phases as "phases" {
        /// Blocks of phase A; below 2^24.
        pub a_blocks: u64 [0..=MOST_LIVE] = 60,
        /// Bytes of a block of phase A.
        #[serde(with = "crate::families::byte_count")]
        pub a_bytes: u64 [1..=MOST_BYTES] = 12 << 20,
        /// Blocks of phase B; below 2^24.
        pub b_blocks: u64 [0..=MOST_LIVE] = 12,
        /// Bytes of a block of phase B.
        #[serde(with = "crate::families::byte_count")]
        pub b_bytes: u64 [1..=MOST_BYTES] = 60 << 20,
        /// Order of the phases in a round: `a_then_b` or `b_then_a`.
        pub order: Order = Order::AThenB,
        /// Rounds of both phases.
        pub rounds: u64 = 10,
    }
}

/// The order of the phases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A, then B.
    AThenB,
    /// B, then A.
    BThenA,
}

impl Phases {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let a = ("a", self.a_blocks, self.a_bytes);
        let b = ("b", self.b_blocks, self.b_bytes);
        let phases = match self.order {
            Order::AThenB => [a, b],
            Order::BThenA => [b, a],
        };
        for round in 0..self.rounds {
            if !program.step(round) {
                break;
            }
            for (phase, blocks, bytes) in phases {
                program.mark(phase);
                let tensors: Vec<Tensor> =
                    (0..blocks).map(|_| program.alloc(bytes, phase)).collect();
                program.free_all(tensors);
            }
        }
        program.finish()
    }
}
