//! A program that is known from its first request to its last, placed before it begins: what there is
//! to gain by knowing.
//!
//! Source: [`crate::placement`], which tries several packers and keeps the lowest placement. It has
//! one setting: `steps`, how many steps of search it may take.

use crate::foresight::{Foresight, Request};
use crate::placement::{Buffer, Effort, Placement, pack};

use super::knobs::{KnobError, Knobs};
use super::planned::{Fallback, Plan, Planned, Step, UNIT};

/// Steps of search unless others are given: some seconds.
const STEPS: u64 = 1_000_000;

/// See the [module](self).
pub struct Offline;

impl Offline {
    /// Places all requests of the program.
    ///
    /// # Errors
    /// If there are settings that it does not have.
    pub fn from_conf(conf: &str, foresight: &Foresight) -> Result<Planned<Fallback>, KnobError> {
        let mut knobs = Knobs::parse(conf)?;
        let steps = knobs.take("steps", STEPS)?;
        knobs.finish()?;
        Planned::new(plan(&foresight.requests, Effort::Steps(steps)))
    }
}

fn plan(requests: &[Request], effort: Effort) -> Plan {
    let buffer = |request: &Request| Buffer {
        lower: request.from,
        upper: request.until,
        size: request.bytes.next_multiple_of(UNIT),
    };
    let buffers: Vec<Buffer> = requests.iter().map(buffer).collect();
    // What cannot be placed is not planned.
    let Ok(Placement {
        offsets, height, ..
    }) = pack(&buffers, effort)
    else {
        return Plan::default();
    };
    let step = |(request, &offset): (&Request, &u64)| Step {
        bytes: request.bytes,
        stream: request.stream,
        offset: Some(offset),
    };
    Plan {
        steps: requests.iter().zip(&offsets).map(step).collect(),
        height,
        ..Plan::default()
    }
}
