//! Random sizes and lifetimes below a cap, for any number of events.
//!
//! Each bit length of a size is equally likely, so most blocks are small and most bytes are in large
//! blocks. At the cap, random blocks are freed until the next one fits. This shows an allocator's steady
//! state, and its speed: 100 million events take seconds. It lacks the regularity of real programs, which
//! caches depend on.

use crate::families::parameters::{MOST_BYTES, MOST_LIVE, below};
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};

family! {
    /// Random sizes and lifetimes below a cap.
    pub struct Churn as "churn" {
        /// Allocations and frees, without the frees at the end.
        pub events: u64 = 100_000,
        /// Most live bytes.
        #[serde(with = "crate::families::byte_count")]
        pub cap_bytes: u64 = 1 << 30,
        /// Most live blocks; below 2^24.
        pub cap_blocks: u64 [1..=MOST_LIVE] = 100_000,
        /// Smallest bit length of a block's size: 10 means at least 512 B.
        pub min_bits: u64 [1..=60] = 1,
        /// Largest bit length of a block's size: 26 means less than 64 MiB.
        pub max_bits: u64 = 26,
        /// Streams, one of them drawn at random for each block.
        pub streams: u64 [1..=1 << 10] = 1,
        /// Seed of sizes, lifetimes and streams.
        pub seed: u64 = 5,
    }
    rules {
        "max_bits": max_bits => min_bits..=60,
        // Any block must fit once all others are freed.
        "cap_bytes": cap_bytes => below(max_bits as u32)..=MOST_BYTES,
    }
}

impl Churn {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        program.mark("step 0");
        let mut live: Vec<Tensor> = Vec::new();
        let mut live_bytes = 0;
        let mut next_bytes = self.size(&mut rng);
        for _ in 0..self.events {
            if program.is_over() {
                break;
            }
            let has_room = live_bytes + next_bytes <= self.cap_bytes;
            if has_room && (live.len() as u64) < self.cap_blocks {
                let stream = rng.below(self.streams) as u32;
                live.push(program.alloc_on(stream, next_bytes, "empty"));
                live_bytes += next_bytes;
                next_bytes = self.size(&mut rng);
            } else {
                let freed = live.swap_remove(rng.below(live.len() as u64) as usize);
                live_bytes -= freed.bytes();
                program.free(freed);
            }
        }
        program.free_all(live);
        program.finish()
    }

    fn size(&self, rng: &mut Rng) -> u64 {
        let floor = 1 << (rng.between(self.min_bits, self.max_bits) - 1);
        floor + rng.below(floor)
    }
}
