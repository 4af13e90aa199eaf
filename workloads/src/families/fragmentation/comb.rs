//! A comb: gaps between blocks that stay.
//!
//! Each round puts down teeth and gaps in turn and frees the gaps; the next round's gaps are a
//! little larger and fit into none of the old ones; and neither do teeth, being larger still. It
//! shows a cache that has plenty and can serve nothing: results that are kept, with a buffer beside
//! each that grows from step to step. What is reserved beyond the request grows with the square of
//! the rounds. It does not show gaps of mixed sizes, of which some would fit, nor small teeth: those
//! would lie in the old gaps.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use super::{MOST_BYTES, MOST_LIVE};
use crate::families::parameters::{refuse, within};
use crate::families::program::{Program, Tensor};
use crate::op::{Sink, Workload, WorkloadError};

/// Gaps between blocks that stay, wanted again a little larger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Comb {
    /// What it is called in results.
    pub name: String,
    /// Teeth that a round puts down, with as many gaps; all rounds together at most 2^24.
    pub teeth: u64,
    /// Bytes of a tooth, which stays until the end.
    #[serde(with = "crate::families::byte_count")]
    pub tooth_bytes: u64,
    /// Bytes of a gap in the first round.
    #[serde(with = "crate::families::byte_count")]
    pub gap_bytes: u64,
    /// Bytes by which a gap is larger in each round than in the one before.
    #[serde(with = "crate::families::byte_count")]
    pub growth_bytes: u64,
    /// Rounds.
    pub rounds: u64,
}

impl Default for Comb {
    fn default() -> Self {
        Self {
            name: "comb".to_owned(),
            teeth: 16,
            tooth_bytes: 16 << 20,
            gap_bytes: 2 << 20,
            growth_bytes: 1 << 20,
            rounds: 14,
        }
    }
}

impl Comb {
    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            "comb",
            [
                ("teeth", self.teeth, 1..=MOST_LIVE),
                ("rounds", self.rounds, 1..=MOST_LIVE),
                (
                    "teeth times rounds",
                    self.teeth.saturating_mul(self.rounds),
                    1..=MOST_LIVE,
                ),
                ("tooth_bytes", self.tooth_bytes, 1..=MOST_BYTES),
                ("gap_bytes", self.gap_bytes, 1..=MOST_BYTES),
            ],
        )?;
        match self.last_gap() {
            Some(..=MOST_BYTES) => Ok(()),
            _ => refuse(
                "comb",
                "the last gap would have 2^60 bytes or more".to_owned(),
            ),
        }
    }

    fn last_gap(&self) -> Option<u64> {
        let grown = self.growth_bytes.checked_mul(self.rounds - 1)?;
        self.gap_bytes.checked_add(grown)
    }
}

impl Workload for Comb {
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
