//! Whether the reference would have done what a recording says: the whole of it replayed at the recorded
//! addresses, under the recorded settings.
//!
//! The replay starts in the state before the first entry, which is had by undoing them all
//! ([`super::rewind`](mod@super::rewind)). The device then gives and refuses memory as it did, and frees
//! complete where they did. Everything else the allocator decides: where each block lies, which segments
//! are taken and returned, and when. The first decision that is not the recorded one ends the replay, for
//! what comes after it follows from it.
//!
//! A verdict that says *exact* means that what the allocator says about other settings is worth
//! something for this program.

mod answers;
mod difference;
mod extents;
mod guesses;
mod limit;
mod replay;
mod tails;
mod trial;

pub use self::difference::{Candidate, Difference};
use self::replay::Plan;
use self::trial::Trial;
use super::Recording;
use super::rewind::RecordingError;

/// What a recording does not tell, if somebody knows it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Known {
    /// Bytes of memory of the device.
    pub capacity: Option<u64>,
    /// The share of it that the process was limited to when the recording began, if not that of the
    /// settings. Needs the capacity.
    pub fraction: Option<f64>,
}

/// What came of a recording.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Whether memory was held before the first entry.
    pub is_warm: bool,
    /// Allocations of the recording.
    pub allocations: usize,
    /// Those of them that lie where they were recorded.
    pub exact: usize,
    /// Segments and pages of the recording that were taken or returned, one for each entry.
    pub segment_events: usize,
    /// Those of them that came about, in kind, place and size.
    pub predicted: usize,
    /// Requests of the recording that failed.
    pub ooms: usize,
    /// Times the replay returned all cached memory because there was no more. Of the recording nothing
    /// but the segments is told.
    pub retries: u64,
    /// Whether the blocks at the end are those of the recording: address, size and state.
    pub is_end_equal: bool,
    /// The limit on the memory held that was found by trying, in bytes.
    pub limit: Option<u64>,
    /// The first decision that is not the recorded one.
    pub difference: Option<Difference>,
    /// What cannot be known, one sentence each.
    pub remarks: Vec<String>,
}

impl Verdict {
    /// Whether everything came out as recorded.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.difference.is_none() && self.is_end_equal
    }
}

/// Replays a recording. What is `known` of the device helps where the recording does not tell it.
///
/// # Errors
/// [`RecordingError`] if no allocator of this kind has made the recording, so that there is nothing to
/// compare with.
pub fn verify(recording: &Recording, known: Known) -> Result<Verdict, RecordingError> {
    let plan = Plan::new(recording)?;
    let mut trial = Trial {
        plan: &plan,
        capacity: known.capacity,
        fraction: known.fraction,
        limit: None,
    };
    let mut run = trial.run()?;
    let collects = plan.settings.garbage_collection_threshold() > 0.0;
    if run.stopped.is_some() && known.capacity.is_none() && collects {
        run = limit::search(&mut trial, run)?;
    }
    let mut verdict = run.verdict;
    verdict.limit = trial.limit;
    verdict.remarks.extend(trial.limit.map(|limit| {
        format!(
            "the limit on memory is not recorded: with one of {limit} bytes the garbage collector \
             does what it did"
        )
    }));
    verdict.remarks.extend(run.guesses.remark());
    if run.stopped.is_some() && known.capacity.is_none() && plan.is_expandable() {
        verdict.remarks.push(format!(
            "how much memory the device had is not recorded, and expandable segments reserve \
             addresses for all of it: taken to be {} bytes",
            run.guesses.memory
        ));
    }
    if let Some((index, deviation)) = run.stopped {
        let difference = Difference::find(&trial, &run.guesses, index, deviation)?;
        verdict.difference = Some(difference);
    }
    Ok(verdict)
}
