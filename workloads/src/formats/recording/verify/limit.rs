//! The limit on memory that the garbage collector went by, found by trying.
//!
//! The collector returns segments when more than a share of the limit is held. A recording tells the
//! share, but not the limit: that is a fraction of the device's memory, which is not told. Under a limit
//! too high the collector does too little, so that memory runs out and all that is cached goes; under one
//! too low it returns segments that were kept. So the limit can be found by bisection, between what was
//! held at most and what would have let the collector do nothing at all.

use super::super::calls::peak_held;
use super::super::rewind::RecordingError;
use super::trial::{Run, Trial};

/// A replay under a limit with which all of the recording comes out: the trial has it then. If there is
/// none, `without`, the replay without a limit.
pub(super) fn search(trial: &mut Trial<'_>, without: Run) -> Result<Run, RecordingError> {
    let plan = trial.plan;
    let segments = plan.start.segments.iter();
    let held: u64 = segments.map(|segment| segment.total_size()).sum();
    let more = u64::try_from(peak_held(&plan.recording.entries)).unwrap_or(u64::MAX);
    let mut low = held.saturating_add(more);
    let most = low as f64 / plan.settings.garbage_collection_threshold();
    let mut high = (most as u64).saturating_add(1).min(without.guesses.memory);
    while low <= high {
        let middle = low + (high - low) / 2;
        trial.limit = Some(middle);
        let run = trial.run()?;
        if run.stopped.is_none() {
            return Ok(run);
        }
        if run.retried {
            high = middle.saturating_sub(1);
        } else {
            low = middle.saturating_add(1);
        }
    }
    trial.limit = None;
    Ok(without)
}
