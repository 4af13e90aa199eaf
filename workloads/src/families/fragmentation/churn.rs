//! Random sizes and random lifetimes below a cap, for as long as you like.
//!
//! A block of each number of bits is as likely as one of any other, so that most blocks are small
//! and most bytes are in large ones. Whenever the cap is reached, blocks go at random until there is
//! room. It shows what an allocator comes to in the long run, where luck evens out, and how fast it
//! is: 100 million events are streamed in seconds. It does not show the regularity of real programs,
//! from which caches live.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::within;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, Workload, WorkloadError};

/// Random sizes and lifetimes below a cap.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Churn {
    /// What it is called in results.
    pub name: String,
    /// Allocations and frees, without those at the end.
    pub events: u64,
    /// Bytes that are live at most.
    #[serde(with = "crate::families::byte_count")]
    pub cap_bytes: u64,
    /// Blocks that are live at most; below 2^24.
    pub cap_blocks: u64,
    /// Bits that the bytes of a block are written in at least: 10 for 512 B and more.
    pub min_bits: u64,
    /// Bits that they are written in at most: 26 for less than 64 MiB.
    pub max_bits: u64,
    /// Streams that blocks are for, at random.
    pub streams: u64,
    /// Determines sizes, lifetimes and streams.
    pub seed: u64,
}

impl Default for Churn {
    fn default() -> Self {
        Self {
            name: "churn".to_owned(),
            events: 100_000,
            cap_bytes: 1 << 30,
            cap_blocks: 100_000,
            min_bits: 1,
            max_bits: 26,
            streams: 1,
            seed: 5,
        }
    }
}

impl Churn {
    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            "churn",
            [
                ("min_bits", self.min_bits, 1..=60),
                ("max_bits", self.max_bits, self.min_bits..=60),
                // So that any block has room once all others are gone.
                (
                    "cap_bytes",
                    self.cap_bytes,
                    (1 << self.max_bits.min(60)) - 1..=MOST_BYTES,
                ),
                ("cap_blocks", self.cap_blocks, 1..=MOST_LIVE),
                ("streams", self.streams, 1..=1 << 10),
            ],
        )
    }
}

impl Workload for Churn {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        program.mark("step 0");
        let mut live: Vec<Tensor> = Vec::new();
        let mut live_bytes = 0;
        let mut wanted = self.size(&mut rng);
        for _ in 0..self.events {
            if program.is_over() {
                break;
            }
            let has_room = live_bytes + wanted <= self.cap_bytes;
            if has_room && (live.len() as u64) < self.cap_blocks {
                let stream = rng.below(self.streams) as u32;
                live.push(program.alloc_on(stream, wanted, "empty"));
                live_bytes += wanted;
                wanted = self.size(&mut rng);
            } else {
                let gone = live.swap_remove(rng.below(live.len() as u64) as usize);
                live_bytes -= gone.bytes();
                program.free(gone);
            }
        }
        program.free_all(live);
        program.finish()
    }
}

impl Churn {
    fn size(&self, rng: &mut Rng) -> u64 {
        let floor = 1 << (rng.between(self.min_bits, self.max_bits) - 1);
        floor + rng.below(floor)
    }
}
