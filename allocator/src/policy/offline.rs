//! Offline placement: every request of the workload is placed in advance.
//!
//! One setting: `steps`, the steps of search to spend; 1,000,000 by default.
//!
//! Source: [`crate::placement`], which tries several packers and keeps the lowest placement. It shows what
//! there is to gain from knowing the workload.

use crate::lifetimes::{Lifetimes, TimedRequest};
use crate::placement::{Effort, Placement, pack};

use super::planned::{AllocationPlan, Step, UNIT};
use super::settings::{PolicySettings, PolicySettingsError};

/// Default steps of search: a few seconds.
const STEPS: u64 = 1_000_000;

/// Places all requests of a workload.
///
/// # Errors
/// If the settings are invalid.
pub fn plan(conf: &str, lifetimes: &Lifetimes) -> Result<AllocationPlan, PolicySettingsError> {
    let steps = PolicySettings::read(conf, |settings| settings.take("steps", STEPS))?;
    Ok(placed(lifetimes, Effort::Steps(steps)))
}

fn placed(lifetimes: &Lifetimes, effort: Effort) -> AllocationPlan {
    // Requests that cannot be placed are not planned.
    let Ok(Placement {
        offsets, height, ..
    }) = pack(&lifetimes.buffers(UNIT), effort)
    else {
        return AllocationPlan::default();
    };
    let step = |(request, &offset): (&TimedRequest, &u64)| Step {
        bytes: request.bytes,
        stream: request.stream,
        offset: Some(offset),
    };
    AllocationPlan {
        steps: lifetimes.requests.iter().zip(&offsets).map(step).collect(),
        height,
        ..AllocationPlan::default()
    }
}
