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
mod limit;
mod replay;
mod tails;

use allocator::history::{Action, TraceEntry};
use allocator::snapshot::SegmentInfo;

pub use self::difference::{Candidate, Difference};
use self::replay::{Deviation, Plan, Replay, is_about_segments, layout};
use self::tails::Tails;
use super::Recording;
use super::calls::CallKind;
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
        memory: known.capacity.unwrap_or_else(|| plan.most_memory()),
        fraction: known.fraction,
    };
    let mut run = trial.run()?;
    let mut limit = None;
    if run.stopped.is_some() && known.capacity.is_none() {
        let collects = plan.settings.garbage_collection_threshold() > 0.0;
        if let Some((found, better)) = collects
            .then(|| limit::search(&mut trial))
            .transpose()?
            .flatten()
        {
            (limit, run) = (Some(found), better);
        }
    }
    let mut verdict = run.verdict;
    verdict.limit = limit;
    if let Some(found) = limit {
        verdict.remarks.push(format!(
            "the limit on memory is not recorded: with one of {found} bytes the garbage collector \
             does what it did"
        ));
    }
    if run.tails.len() > 0 {
        verdict.remarks.push(format!(
            "the sizes of {} of these blocks were found by trying",
            run.tails.len()
        ));
    }
    if let Some((index, deviation)) = run.stopped {
        verdict.difference = Some(Difference::find(&trial, &run.tails, index, deviation)?);
    }
    Ok(verdict)
}

/// A way to replay a recording.
struct Trial<'a> {
    plan: &'a Plan<'a>,
    /// Bytes of memory of the device.
    memory: u64,
    /// The share of it that may be held, if not that of the settings.
    fraction: Option<f64>,
}

/// How far a replay went.
struct Run {
    verdict: Verdict,
    /// The call at which it ended early, and what the allocator did there.
    stopped: Option<(usize, Deviation)>,
    /// Whether it returned all cached memory at that call.
    retried: bool,
    /// The state after that.
    segments: Vec<SegmentInfo>,
    /// What blocks of the start had more than is known.
    tails: Tails,
}

impl Trial<'_> {
    fn begin(&self, tails: &Tails) -> Result<Replay<'_>, RecordingError> {
        let replay = Replay::new(self.plan, self.memory, tails);
        let mut replay = replay.map_err(RecordingError::Start)?;
        if let Some(fraction) = self.fraction {
            let limited = replay.set_limit(fraction);
            limited.map_err(|error| RecordingError::Start(error.into()))?;
        }
        Ok(replay)
    }

    /// Replays until everything comes out or no guess about the start is left that may be wrong.
    fn run(&self) -> Result<Run, RecordingError> {
        /// Enough for hundreds of blocks; the time for a recording stays within a minute.
        const MOST_GUESSES: usize = 500;
        let mut run = self.run_with(Tails::default())?;
        for _ in 0..MOST_GUESSES {
            let Some((index, deviation)) = &run.stopped else {
                break;
            };
            let call = self.plan.calls[*index].entries.start;
            let mut tails = run.tails.clone();
            if !tails.lengthen(self.plan, &deviation.ours, &run.segments, call) {
                break;
            }
            run = self.run_with(tails)?;
        }
        Ok(run)
    }

    fn run_with(&self, tails: Tails) -> Result<Run, RecordingError> {
        let plan = self.plan;
        let mut replay = self.begin(&tails)?;
        let count = |action: fn(Action) -> bool| {
            let entries = plan.recording.entries.iter();
            entries.filter(|entry| action(entry.action)).count()
        };
        let mut verdict = Verdict {
            is_warm: plan.start.is_warm(),
            allocations: count(|action| action == Action::Alloc),
            segment_events: count(is_about_segments),
            ooms: count(|action| action == Action::Oom),
            remarks: plan.start.remarks.clone(),
            ..Verdict::default()
        };
        let mut stopped = None;
        let mut retried = false;
        for (index, call) in plan.calls.iter().enumerate() {
            let retries = replay.retries();
            let outcome = replay.make(call);
            let recorded = plan.entries_of(call);
            let ours = match &outcome {
                Ok(()) => recorded,
                Err(deviation) => &deviation.ours,
            };
            verdict.exact += usize::from(call.kind == CallKind::Malloc && lands(ours, recorded));
            verdict.predicted += common_segment_events(ours, recorded);
            if let Err(deviation) = outcome {
                retried = replay.retries() > retries;
                stopped = Some((index, deviation));
                break;
            }
        }
        verdict.retries = replay.retries();
        let segments = replay.segments();
        verdict.is_end_equal =
            stopped.is_none() && layout(&segments) == layout(&plan.recording.segments);
        Ok(Run {
            verdict,
            stopped,
            retried,
            segments,
            tails,
        })
    }
}

/// Whether a malloc handed out what was recorded.
fn lands(ours: &[TraceEntry], recorded: &[TraceEntry]) -> bool {
    let allocated = |entries: &[TraceEntry]| {
        let last = entries.last().filter(|last| last.action == Action::Alloc);
        last.map(|last| last.addr)
    };
    let ours = allocated(ours);
    ours.is_some() && ours == allocated(recorded)
}

/// How many segments and pages came and went as recorded, until the first that did not.
fn common_segment_events(ours: &[TraceEntry], recorded: &[TraceEntry]) -> usize {
    let told = |entry: &TraceEntry| (entry.action, entry.addr, entry.size, entry.stream);
    let ours = ours.iter().filter(|entry| is_about_segments(entry.action));
    let recorded = recorded
        .iter()
        .filter(|entry| is_about_segments(entry.action));
    let pairs = ours.zip(recorded);
    pairs
        .take_while(|(ours, recorded)| told(ours) == told(recorded))
        .count()
}
