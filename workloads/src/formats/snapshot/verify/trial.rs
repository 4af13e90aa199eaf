//! Replays from the first call to the last, or to the first that deviates, and repeats with better guesses.

use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::snapshot::SegmentInfo;

use super::super::calls::CallKind;
use super::super::rewind::RecordingError;
use super::Verification;
use super::guesses::Guesses;
use super::heuristics::Heuristic;
use super::observed::Observations;
use super::pools::Pools;
use super::prepared::{Deviation, Prepared};
use super::replay::Replay;
use crate::clock::Instant;

/// Calls that are replayed at most, to bound the time for long recordings.
const MOST_CALLS: usize = 30_000_000;

/// The conditions of a replay.
pub(super) struct Trial<'a> {
    pub(super) prepared: &'a Prepared<'a>,
    /// Bytes of device memory, if known.
    pub(super) capacity: Option<u64>,
    /// The initial memory fraction, if it differs from the settings.
    pub(super) fraction: Option<f64>,
    /// When replays give up.
    pub(super) until: Option<Instant>,
    /// A limit to try, in bytes, instead of the fraction.
    pub(super) limit: Option<u64>,
    /// How many guesses are tried.
    pub(super) most_guesses: usize,
}

/// The result of a replay.
pub(super) struct Attempt {
    pub(super) verification: Verification,
    /// The index of the call that deviated, and its deviation.
    pub(super) stopped: Option<(usize, Deviation)>,
    /// Whether that call returned all cached memory.
    pub(super) retried: bool,
    /// The state at the end.
    pub(super) segments: Vec<SegmentInfo>,
    /// Its guesses.
    pub(super) guesses: Guesses,
}

impl Attempt {
    /// The first entry of the call that deviated; the maximum if none did.
    pub(super) fn reach(&self) -> usize {
        let call = self
            .stopped
            .as_ref()
            .and_then(|&(index, _)| self.guesses.calls.get(index));
        call.map_or(usize::MAX, |call| call.entries().start)
    }
}

impl Trial<'_> {
    /// Fails if time has run out, which is checked at some of the calls.
    pub(super) fn ensure_time(&self, call: usize) -> Result<(), RecordingError> {
        let is_late = || self.until.is_some_and(|until| Instant::now() >= until);
        if call.is_multiple_of(256) && is_late() {
            Err(RecordingError::Unfinished)
        } else {
            Ok(())
        }
    }

    /// The state before the first entry.
    pub(super) fn begin(&self, guesses: &Guesses) -> Result<Replay<'_>, RecordingError> {
        let mut replay = Replay::new(self.prepared, guesses).map_err(RecordingError::Start)?;
        let share = |limit: u64| limit as f64 / guesses.memory as f64;
        if let Some(fraction) = self.fraction.or(self.limit.map(share)) {
            let limited = replay.set_limit(fraction);
            limited.map_err(|error| RecordingError::Start(error.into()))?;
        }
        Ok(replay)
    }

    /// Replays until the recording is reproduced or no guess is left to change.
    pub(super) fn run(&self) -> Result<Attempt, RecordingError> {
        self.run_from(Guesses::first(self.prepared, self.capacity), MOST_CALLS)
    }

    /// As [`Self::run`], beginning with the guesses of a replay that stopped, and with private pools that were gone
    /// at the end. None if they do not explain the whole recording.
    pub(super) fn run_with_pools(
        &self,
        stopped: &Attempt,
    ) -> Result<Option<Attempt>, RecordingError> {
        self.run_from_pools(stopped, Pools::default(), MOST_CALLS)
    }

    /// Like [`Self::run_with_pools`], but if that fails also starts from guesses based on the recorded addresses.
    pub(super) fn run_with_observed_pools(
        &self,
        stopped: &Attempt,
    ) -> Result<Option<Attempt>, RecordingError> {
        let mut run = self.run_with_pools(stopped)?;
        let observed = Observations::of(self.prepared);
        let mut heuristics = Heuristic::ALL.into_iter();
        while run.is_none()
            && let Some(heuristic) = heuristics.next()
        {
            let pools = Pools::first(&self.prepared.gone, observed.guess(heuristic));
            run = self.run_from_pools(stopped, pools, MOST_CALLS / Heuristic::ALL.len())?;
        }
        Ok(run)
    }

    fn run_from_pools(
        &self,
        stopped: &Attempt,
        pools: Pools,
        most_calls: usize,
    ) -> Result<Option<Attempt>, RecordingError> {
        let mut guesses = stopped.guesses.clone();
        guesses.guesses_pools = true;
        guesses.pools = pools;
        let run = self.run_from(guesses, most_calls)?;
        let is_helped = run.stopped.is_none() && !run.guesses.pools.is_empty();
        Ok(is_helped.then_some(run))
    }

    /// Improves guesses until they explain the recording, none is left to change, or so many calls were replayed.
    fn run_from(&self, guesses: Guesses, most_calls: usize) -> Result<Attempt, RecordingError> {
        let mut calls = 0;
        let mut run = self.run_with(guesses)?;
        for _ in 0..self.most_guesses {
            let replayed = |run: &Attempt| match run.stopped {
                Some((index, _)) => index,
                None => run.guesses.calls.len(),
            };
            calls += replayed(&run);
            if calls > most_calls {
                break;
            }
            let better = run.stopped.as_ref().and_then(|(index, deviation)| {
                let (prepared, segments) = (self.prepared, &run.segments);
                run.guesses.refine(prepared, *index, deviation, segments)
            });
            let Some(better) = better else {
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

    fn run_with(&self, guesses: Guesses) -> Result<Attempt, RecordingError> {
        let prepared = self.prepared;
        let mut replay = self.begin(&guesses)?;
        let count = |is: fn(Action) -> bool| {
            let entries = prepared.recording.entries.iter();
            entries.filter(|entry| is(entry.action)).count()
        };
        let mut verification = Verification {
            is_warm: prepared.start.is_warm(),
            allocations: count(|action| action == Action::Alloc),
            segment_events: count(Action::is_about_segments),
            ooms: count(|action| action == Action::Oom),
            remarks: prepared.start.remarks.clone(),
            ..Verification::default()
        };
        let mut stopped = None;
        let mut retried = false;
        for (index, call) in guesses.calls.iter().enumerate() {
            self.ensure_time(index)?;
            let retries = replay.retries();
            let outcome = replay.make(call);
            let recorded = prepared.entries_of(call);
            let is_malloc = call.kind == CallKind::Malloc;
            if let Err(deviation) = outcome {
                let ours = &deviation.ours;
                verification.exact += usize::from(is_malloc && lands(ours, recorded));
                verification.predicted += common_segment_events(ours, recorded);
                retried = replay.retries() > retries;
                stopped = Some((index, deviation));
                break;
            }
            verification.exact += usize::from(is_malloc);
            let events = recorded.iter().map(|entry| entry.action);
            verification.predicted += events.filter(|event| event.is_about_segments()).count();
        }
        verification.retries = replay.retries();
        Ok(Attempt {
            verification,
            stopped,
            retried,
            segments: replay.segments(),
            guesses,
        })
    }
}

/// Whether a malloc returned the recorded address.
fn lands(ours: &[TraceEntry], recorded: &[TraceEntry]) -> bool {
    let allocated = |entries: &[TraceEntry]| {
        let last = entries.last().filter(|last| last.action == Action::Alloc);
        last.map(|last| last.addr)
    };
    let ours = allocated(ours);
    ours.is_some() && ours == allocated(recorded)
}

/// The number of segments and pages taken and returned as recorded, up to the first difference.
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

#[cfg(test)]
mod tests {
    use Action::{Alloc, Oom, SegmentAlloc, SegmentFree, SegmentMap};

    use super::*;
    use crate::formats::snapshot::fixture::entry;

    #[test]
    fn a_malloc_lands_where_the_last_entries_agree() {
        let [one, two] = [1, 2].map(|addr| entry(Alloc, addr, 512));
        let failed = entry(Oom, 1, 512);
        let taken = entry(SegmentAlloc, 1, 512);
        assert!(lands(&[one], &[one]) && lands(&[taken, one], &[two, one]));
        assert!(!lands(&[one], &[two]) && !lands(&[failed], &[failed]));
        assert!(!lands(&[], &[]) && !lands(&[one, taken], &[one, taken]));
    }

    #[test]
    fn segments_are_counted_up_to_the_first_difference() {
        let [a, b, c] = [1, 2, 3].map(|addr| entry(SegmentFree, addr, 512));
        let alloc = entry(Alloc, 9, 512);
        let mut other = b;
        other.size += 512;
        let common = common_segment_events;
        assert_eq!(common(&[a, alloc, b, c], &[a, b, alloc, alloc, c]), 3);
        assert_eq!(common(&[a, b, c], &[a, other, c]), 1);
        assert_eq!(common(&[a, b], &[a, b, c]), 2);
        assert_eq!(common(&[b, a], &[a, b]), 0);
        let mapped = [SegmentMap, SegmentAlloc].map(|action| entry(action, 1, 512));
        assert_eq!(common(&mapped[..1], &mapped[1..]), 0);
        assert_eq!(common(&[alloc], &[alloc]), 0);
    }
}
