//! A replay from the first call to the last or to the first that deviates, and again with better guesses.

use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::snapshot::SegmentInfo;

use super::super::calls::CallKind;
use super::super::rewind::RecordingError;
use super::Verdict;
use super::guesses::Guesses;
use super::replay::{Deviation, Plan, Replay, layout};

/// A way to replay a recording.
pub(super) struct Trial<'a> {
    pub(super) plan: &'a Plan<'a>,
    /// Bytes of memory of the device, if known.
    pub(super) capacity: Option<u64>,
    /// The share of it that may be held at first, if not that of the settings.
    pub(super) fraction: Option<f64>,
    /// As the fraction, in bytes: a limit that is tried.
    pub(super) limit: Option<u64>,
}

/// How far a replay went.
pub(super) struct Run {
    pub(super) verdict: Verdict,
    /// The call at which it ended early, and what the allocator did there.
    pub(super) stopped: Option<(usize, Deviation)>,
    /// Whether it returned all cached memory at that call.
    pub(super) retried: bool,
    /// The state after that.
    pub(super) segments: Vec<SegmentInfo>,
    /// What it took for granted.
    pub(super) guesses: Guesses,
}

impl Run {
    /// The entry at which it ended early: none is before the end.
    pub(super) fn reach(&self) -> usize {
        let call = self.stopped.as_ref();
        let call = call.and_then(|&(index, _)| self.guesses.calls.get(index));
        call.map_or(usize::MAX, |call| call.entries.start)
    }
}

impl Trial<'_> {
    /// The state before the first entry.
    pub(super) fn begin(&self, guesses: &Guesses) -> Result<Replay<'_>, RecordingError> {
        let replay = Replay::new(self.plan, guesses);
        let mut replay = replay.map_err(RecordingError::Start)?;
        let share = |limit: u64| limit as f64 / guesses.memory as f64;
        if let Some(fraction) = self.fraction.or(self.limit.map(share)) {
            let limited = replay.set_limit(fraction);
            limited.map_err(|error| RecordingError::Start(error.into()))?;
        }
        Ok(replay)
    }

    /// Replays until everything comes out or no guess is left that may be wrong.
    pub(super) fn run(&self) -> Result<Run, RecordingError> {
        /// Enough for hundreds of blocks; the time for a recording stays within a minute or two.
        const MOST_GUESSES: usize = 500;
        let mut run = self.run_with(Guesses::first(self.plan, self.capacity))?;
        for _ in 0..MOST_GUESSES {
            let Some(better) = run.guesses.refine(self.plan, &run) else {
                break;
            };
            let next = self.run_with(better.guesses)?;
            if next.reach() > run.reach() || !better.must_help {
                run = next;
            } else {
                run.guesses.reject(next.guesses);
            }
        }
        Ok(run)
    }

    fn run_with(&self, guesses: Guesses) -> Result<Run, RecordingError> {
        let plan = self.plan;
        let mut replay = self.begin(&guesses)?;
        let count = |is: fn(Action) -> bool| {
            let entries = plan.recording.entries.iter();
            entries.filter(|entry| is(entry.action)).count()
        };
        let mut verdict = Verdict {
            is_warm: plan.start.is_warm(),
            allocations: count(|action| action == Action::Alloc),
            segment_events: count(Action::is_about_segments),
            ooms: count(|action| action == Action::Oom),
            remarks: plan.start.remarks.clone(),
            ..Verdict::default()
        };
        let mut stopped = None;
        let mut retried = false;
        for (index, call) in guesses.calls.iter().enumerate() {
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
            guesses,
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
    let about_segments = |entries: &[TraceEntry]| -> Vec<_> {
        let entries = entries
            .iter()
            .filter(|entry| entry.action.is_about_segments());
        entries
            .map(|entry| (entry.action, entry.addr, entry.size))
            .collect()
    };
    let (ours, recorded) = (about_segments(ours), about_segments(recorded));
    let pairs = ours.iter().zip(&recorded);
    pairs
        .take_while(|(ours, recorded)| ours == recorded)
        .count()
}
