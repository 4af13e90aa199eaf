//! Buffers that grow by copying: a larger buffer is allocated, then the old one is freed.
//!
//! A key-value cache that is concatenated with each token grows in steps; a growing list doubles.
//! Doubling leaves no reusable memory: 1 + 2 + 4 + … + 2^k is less than 2^(k+1), so all freed buffers
//! together never hold the next one. Growing by half they eventually do, if they are adjacent and the
//! allocator can coalesce them; blocks of different segments cannot be coalesced. Buffers that grow in
//! place are not covered.

use crate::families::parameters::{MOST_BYTES, MOST_LIVE};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, WorkloadError};

family! {
    /// Buffers that grow by copying, in steps or by a factor.
    pub struct Growth as "growth" {
        /// Buffers, which grow in turn; below 2^24.
        pub buffers: u64 [1..=MOST_LIVE] = 8,
        /// Initial bytes of a buffer.
        #[serde(with = "crate::families::byte_count")]
        pub bytes: u64 [1..=MOST_BYTES] = 4 << 20,
        /// New size in percent of the old size: 200 doubles it.
        pub percent: u64 [100..=1 << 20] = 100,
        /// Bytes added to that.
        #[serde(with = "crate::families::byte_count")]
        pub add_bytes: u64 = 1 << 20,
        /// Most bytes of a buffer; beyond it the round ends and all buffers are freed.
        #[serde(with = "crate::families::byte_count")]
        pub most_bytes: u64 = 128 << 20,
        /// Rounds from the first size to the last.
        pub rounds: u64 = 2,
    }
    rules {
        "most_bytes": most_bytes => bytes..=MOST_BYTES,
    }
}

impl Growth {
    /// The size after `bytes`, at least one byte larger; `None` at the end of the round.
    fn next(&self, bytes: u64) -> Option<u64> {
        let scaled = u128::from(bytes) * u128::from(self.percent) / 100;
        let next = (scaled + u128::from(self.add_bytes)).max(u128::from(bytes) + 1);
        let next = u64::try_from(next).ok()?;
        (next <= self.most_bytes).then_some(next)
    }

    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        for round in 0..self.rounds {
            if !program.step(round) {
                break;
            }
            let mut buffers: Vec<Tensor> = (0..self.buffers)
                .map(|_| program.alloc(self.bytes, "empty"))
                .collect();
            let mut bytes = self.bytes;
            while let Some(next) = self.next(bytes) {
                if program.is_over() {
                    return program.finish();
                }
                let copies = buffers
                    .into_iter()
                    .map(|old| program.replace(old, next, "cat"));
                buffers = copies.collect();
                bytes = next;
            }
            program.free_all(buffers);
        }
        program.finish()
    }
}
