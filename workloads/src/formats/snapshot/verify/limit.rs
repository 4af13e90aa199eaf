//! Searches the memory limit that the garbage collector used.
//!
//! The collector returns segments when reserved memory exceeds a share of the limit. A recording contains
//! the share but not the limit, a fraction of the unrecorded device memory. If the limit is too high, the
//! collector returns too little, memory runs out and the whole cache is returned; if it is too low, the
//! collector returns segments that were kept. Bisection therefore finds the limit, between the peak of
//! reserved memory and the limit under which the collector never runs.

use super::super::calls::peak_reserved;
use super::super::rewind::RecordingError;
use super::trial::{Attempt, Trial};

/// The replay under a limit that reproduces the whole recording, which is left in `trial`; or `without`, the
/// replay without a limit, if no limit does.
pub(super) fn search(trial: &mut Trial<'_>, without: Attempt) -> Result<Attempt, RecordingError> {
    let prepared = trial.prepared;
    let segments = prepared.start.segments.iter();
    let reserved: u64 = segments.map(|segment| segment.total_size()).sum();
    let more = u64::try_from(peak_reserved(&prepared.recording.entries)).unwrap_or(u64::MAX);
    let mut low = reserved.saturating_add(more);
    let most = low as f64 / prepared.settings.garbage_collection_threshold();
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
