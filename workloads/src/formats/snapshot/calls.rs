//! Reconstructs the calls of the program from the history.
//!
//! A malloc may write many entries: frees that it found completed, segments that it returned because memory
//! was short, segments that it took, and finally the allocation. One case is ambiguous: segments returned
//! right before others are taken were returned either by `empty_cache` or by the malloc that took the
//! others. They belong to the malloc
//!
//! - if stacks were recorded: if both were called from the same place;
//! - otherwise: unless the malloc could have used one of the returned segments; or unless more memory was
//!   reserved at another time, so that the device had room for the new segments. Without a garbage collector,
//!   a malloc returns nothing while the device has room.
//!
//! Source: PyTorch 2.11, where entries are written.

use std::ops::Range;

use coalesce_alloc::MempoolId;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size::{self, SMALL_SEGMENT};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::PoolKind;

use super::Recording;

/// The kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallKind {
    /// An allocation, which is its last entry.
    Malloc,
    /// A failed allocation; the failure is its last entry.
    FailedMalloc,
    /// A free that completed at once.
    Free,
    /// A free that waits for other streams.
    FreeRequest,
    /// The return of all cached memory (`torch.cuda.empty_cache`).
    EmptyCache,
    /// Completed frees whose call is unknown, because the beginning of the history is missing.
    Completions,
    /// A snapshot.
    Snapshot,
}

/// A call of the program. It is small, because a recording has nearly as many calls as entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// What was called.
    pub kind: CallKind,
    /// The indices of its entries; no file is long enough for 2^32 entries.
    start: u32,
    end: u32,
}

impl Call {
    /// The call that wrote the entries with these indices.
    #[must_use]
    pub fn new(kind: CallKind, entries: Range<usize>) -> Self {
        let index = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        Self {
            kind,
            start: index(entries.start),
            end: index(entries.end),
        }
    }

    /// The indices of its entries.
    #[must_use]
    pub fn entries(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// All calls of a recording, in order. `collects_garbage` tells whether the settings allow a malloc to
/// return memory while the device has some.
#[must_use]
pub fn calls(recording: &Recording, collects_garbage: bool) -> Vec<Call> {
    let entries = &recording.entries;
    let mut reader = Reader {
        recording,
        collects_garbage,
        peak: peak_reserved(entries),
        takes_any_cached: takes_any_cached(recording),
        // Most calls have two entries. Growing would leave as much unused memory as the calls take.
        calls: Vec::with_capacity(entries.len()),
    };
    let (mut at, mut reserved) = (0, 0);
    while let Some(first) = entries.get(at) {
        let end = match first.action {
            Action::FreeRequested => {
                let completes = |next: &&TraceEntry| {
                    next.action == Action::FreeCompleted && next.addr == first.addr
                };
                match entries.get(at + 1).filter(completes) {
                    Some(_) => reader.push(CallKind::Free, at..at + 2),
                    None => reader.push(CallKind::FreeRequest, at..at + 1),
                }
            }
            Action::Snapshot => reader.push(CallKind::Snapshot, at..at + 1),
            _ => reader.read_run(at, reserved),
        };
        reserved += entries[at..end].iter().map(added_by).sum::<i128>();
        at = end;
    }
    reader.calls
}

/// Bytes that an entry adds to the reserved memory.
fn added_by(entry: &TraceEntry) -> i128 {
    match entry.action {
        action if action.takes_memory() => entry.size.into(),
        action if action.returns_memory() => -i128::from(entry.size),
        _ => 0,
    }
}

/// The peak of reserved memory, in bytes above the reserved memory at the start.
pub(super) fn peak_reserved(entries: &[TraceEntry]) -> i128 {
    let mut reserved = 0;
    let mut peak = 0;
    for entry in entries {
        reserved += added_by(entry);
        peak = peak.max(reserved);
    }
    peak
}

struct Reader<'a> {
    recording: &'a Recording,
    collects_garbage: bool,
    /// The peak of reserved memory, in bytes above the reserved memory at the start.
    peak: i128,
    /// The settings, if a malloc takes any cached segment of its stream that is large enough: all are split,
    /// and none belongs to another pool.
    takes_any_cached: Option<Settings>,
    calls: Vec<Call>,
}

/// See [`Reader::takes_any_cached`].
fn takes_any_cached(recording: &Recording) -> Option<Settings> {
    let settings = recording.settings().ok()?.settings;
    let mut segments = recording.segments.iter();
    let one_pool = segments.all(|segment| segment.pool == MempoolId::DEFAULT);
    (one_pool && settings.max_split_size().is_none()).then_some(settings)
}

impl Reader<'_> {
    fn push(&mut self, kind: CallKind, entries: Range<usize>) -> usize {
        let end = entries.end;
        self.calls.push(Call::new(kind, entries));
        end
    }

    /// Reads the entries from `start` up to an allocation, a failure, or an entry that belongs to neither.
    /// `reserved` bytes are reserved before, above the reserved memory at the start.
    fn read_run(&mut self, start: usize, reserved: i128) -> usize {
        let rest = self.recording.entries.iter().enumerate().skip(start);
        let is_end = |action: Action| {
            let ends_before = matches!(action, Action::FreeRequested | Action::Snapshot);
            ends_before || action.ends_request()
        };
        let last = rest.clone().find(|(_, entry)| is_end(entry.action));
        let kind = last.map(|(_, entry)| entry.action);
        let before = last.map_or(self.recording.entries.len(), |(index, _)| index);
        let kind = match kind {
            Some(Action::Alloc) => CallKind::Malloc,
            Some(Action::Oom) => CallKind::FailedMalloc,
            _ => return self.push(self.kind_without_malloc(start..before), start..before),
        };
        let end = before + 1;
        let split = self.end_of_empty_cache(start..end, reserved);
        if split > start {
            self.push(CallKind::EmptyCache, start..split);
        }
        self.push(kind, split..end)
    }

    fn kind_without_malloc(&self, run: Range<usize>) -> CallKind {
        let mut entries = self.recording.entries[run].iter();
        if entries.any(|entry| entry.action.returns_memory()) {
            CallKind::EmptyCache
        } else {
            CallKind::Completions
        }
    }

    /// The end of the `empty_cache` at the beginning of a run that ends with a malloc.
    fn end_of_empty_cache(&self, run: Range<usize>, reserved: i128) -> usize {
        let entries = &self.recording.entries[run.clone()];
        let returns = |entry: &TraceEntry| entry.action.returns_memory();
        let Some(last_return) = entries.iter().rposition(returns) else {
            return run.start;
        };
        let taken: i128 = entries[last_return + 1..].iter().map(added_by).sum();
        let by_malloc = match self.same_caller(run.start + last_return, run.end - 1) {
            Some(same) => same,
            None if self.would_serve(&entries[..=last_return], entries.last()) => false,
            None if entries
                .last()
                .is_some_and(|last| last.action == Action::Oom) =>
            {
                true
            }
            None => taken > 0 && (self.collects_garbage || reserved + taken > self.peak),
        };
        if by_malloc {
            run.start
        } else {
            run.start + last_return + 1
        }
    }

    /// Whether one of the `returned` segments was free before and would have served a request.
    fn would_serve(&self, returned: &[TraceEntry], request: Option<&TraceEntry>) -> bool {
        let known = self.takes_any_cached.as_ref().zip(request);
        let Some((settings, request)) = known else {
            return false;
        };
        let Some(size) = size::round_size(request.size, settings) else {
            return false;
        };
        let is_small = |bytes: u64| bytes <= SMALL_SEGMENT;
        let fits = |entry: &TraceEntry| {
            entry.action == Action::SegmentFree
                && entry.stream == request.stream
                && is_small(entry.size) == (size::pool_kind(size) == PoolKind::Small)
                && entry.size >= size
        };
        // Segments that became free on the way are not searched.
        let mut returned = returned.iter();
        returned.clone().any(fits) && !returned.any(|entry| entry.action == Action::FreeCompleted)
    }

    /// Whether two entries were written in calls from the same place, if stacks were recorded.
    fn same_caller(&self, one: usize, other: usize) -> Option<bool> {
        let known = |entry: usize| {
            let stack = self.recording.stack_of(entry)?;
            (!stack.frames.is_empty()).then_some(stack)
        };
        Some(known(one)? == known(other)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::recording;

    #[test]
    fn entries_are_of_calls() {
        cases::check("src/formats/snapshot/cases/calls.txt", |text| {
            let recording = recording(text);
            let settings = recording.settings().unwrap().settings;
            let calls = calls(&recording, settings.garbage_collection_threshold() > 0.0);
            let told = calls
                .iter()
                .map(|call| format!("{:?} {:?}", call.kind, call.entries()));
            told.collect::<Vec<_>>().join(", ")
        });
    }
}
