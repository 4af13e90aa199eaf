//! Buffers that grow by being copied: a larger one is made, then the old one goes.
//!
//! A key-value cache that is concatenated with each token grows in steps; a list that makes room
//! for more doubles. It shows why doubling leaves nothing to use again: 1 + 2 + 4 + … + 2^k is less
//! than 2^(k+1), so that all that was given back never holds the next one, while with a half more
//! each time it does in the end, if the pieces lie side by side and the allocator can join them.
//! Segments of one block each cannot be joined. It does not show buffers that grow in place.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::within;
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, Workload, WorkloadError};

/// Buffers that grow by being copied, in steps or by a factor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Growth {
    /// What it is called in results.
    pub name: String,
    /// Buffers that grow in turns; below 2^24.
    pub buffers: u64,
    /// Bytes of a buffer at first.
    #[serde(with = "crate::families::byte_count")]
    pub bytes: u64,
    /// Of its bytes, how many percent it has after it grew: 200 doubles it.
    pub percent: u64,
    /// Bytes that are added to that.
    #[serde(with = "crate::families::byte_count")]
    pub add_bytes: u64,
    /// Bytes beyond which a buffer does not grow: all of them go, and begin anew.
    #[serde(with = "crate::families::byte_count")]
    pub most_bytes: u64,
    /// Times that buffers grow from the first size to the last.
    pub rounds: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            name: "growth".to_owned(),
            buffers: 8,
            bytes: 4 << 20,
            percent: 100,
            add_bytes: 1 << 20,
            most_bytes: 128 << 20,
            rounds: 2,
        }
    }
}

impl Growth {
    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            "growth",
            [
                ("buffers", self.buffers, 1..=MOST_LIVE),
                ("bytes", self.bytes, 1..=MOST_BYTES),
                ("percent", self.percent, 100..=1 << 20),
                ("most_bytes", self.most_bytes, self.bytes..=MOST_BYTES),
            ],
        )
    }

    /// The size after that of `bytes`, if there is one: at least a byte more.
    fn next(&self, bytes: u64) -> Option<u64> {
        let scaled = u128::from(bytes) * u128::from(self.percent) / 100;
        let next = (scaled + u128::from(self.add_bytes)).max(u128::from(bytes) + 1);
        let next = u64::try_from(next).ok()?;
        (next <= self.most_bytes).then_some(next)
    }
}

impl Workload for Growth {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        for round in 0..self.rounds {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {round}"));
            let buffers = (0..self.buffers).map(|_| program.alloc(self.bytes, "empty"));
            let mut buffers: Vec<Tensor> = buffers.collect();
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
