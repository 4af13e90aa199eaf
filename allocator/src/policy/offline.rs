//! A program that is known from its first request to its last, placed before it begins: what there is
//! to gain by knowing.
//!
//! Source: [`crate::placement`], which tries several packers and keeps the lowest placement. It has
//! one setting: `steps`, how many steps of search it may take.

use crate::lifetimes::{Lifetimes, TimedRequest};
use crate::placement::{Effort, Placement, pack};

use super::planned::{AllocationPlan, Step, UNIT};
use super::settings::{PolicySettings, PolicySettingsError};

/// Steps of search unless others are given: some seconds.
const STEPS: u64 = 1_000_000;

/// Places all requests of the program.
///
/// # Errors
/// If there are settings that it does not have.
pub fn plan(conf: &str, program: &Lifetimes) -> Result<AllocationPlan, PolicySettingsError> {
    let steps = PolicySettings::read(conf, |settings| settings.take("steps", STEPS))?;
    Ok(placed(program, Effort::Steps(steps)))
}

fn placed(program: &Lifetimes, effort: Effort) -> AllocationPlan {
    // What cannot be placed is not planned.
    let Ok(Placement {
        offsets, height, ..
    }) = pack(&program.buffers(UNIT), effort)
    else {
        return AllocationPlan::default();
    };
    let step = |(request, &offset): (&TimedRequest, &u64)| Step {
        bytes: request.bytes,
        stream: request.stream,
        offset: Some(offset),
    };
    AllocationPlan {
        steps: program.requests.iter().zip(&offsets).map(step).collect(),
        height,
        ..AllocationPlan::default()
    }
}
