//! A program that is known from its first request to its last, placed before it begins: what there is
//! to gain by knowing.
//!
//! Source: [`crate::placement`], which tries several packers and keeps the lowest placement. It has
//! one setting: `steps`, how many steps of search it may take.

use crate::foresight::{Foresight, Request};
use crate::placement::{Effort, Placement, pack};

use super::knobs::{KnobError, Knobs};
use super::planned::{Plan, Step, UNIT};

/// Steps of search unless others are given: some seconds.
const STEPS: u64 = 1_000_000;

/// Places all requests of the program.
///
/// # Errors
/// If there are settings that it does not have.
pub fn plan(conf: &str, program: &Foresight) -> Result<Plan, KnobError> {
    let mut knobs = Knobs::parse(conf)?;
    let steps = knobs.take("steps", STEPS)?;
    knobs.finish()?;
    Ok(placed(program, Effort::Steps(steps)))
}

fn placed(program: &Foresight, effort: Effort) -> Plan {
    // What cannot be placed is not planned.
    let Ok(Placement {
        offsets, height, ..
    }) = pack(&program.buffers(UNIT), effort)
    else {
        return Plan::default();
    };
    let step = |(request, &offset): (&Request, &u64)| Step {
        bytes: request.bytes,
        stream: request.stream,
        offset: Some(offset),
    };
    Plan {
        steps: program.requests.iter().zip(&offsets).map(step).collect(),
        height,
        ..Plan::default()
    }
}
