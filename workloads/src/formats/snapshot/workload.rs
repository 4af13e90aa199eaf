//! A recording as a workload: the requests of its program, for any allocator.
//!
//! First come the blocks that were live before the first entry, by address, because the order of their
//! allocation is not recorded. Then come the calls of the program.
//!
//! - A free that has to wait for other streams waits for an event, which finishes where the recording
//!   completes the free. An allocator that is out of memory can wait for it. A block freed before the first
//!   entry is freed where that free completes.
//! - A request that failed when recorded is a malloc with a tag that says so. Retries are not failures. The size is that
//!   of the block, which is what is recorded. `course.rs` tells how the program goes on after a failure.
//! - Requests to private pools and captures of CUDA graphs are inferred (`pools.rs`).
//! - Streams are numbered in the order of their handles, because allocators may order by them; the default
//!   stream is 0.
//! - The ids number the requests from 0, in order.
//! - `step N` marks the begin of the profiler's step N, or else the end of the N-th optimizer step.

mod pools;
mod waits;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::{MempoolId, PoolCall};
use foldhash::fast::FixedState;

use self::pools::{PoolCalls, pool_calls};
use self::waits::Waits;
use super::calls::{Call, CallKind, calls};
use super::consistent::is_consistent;
use super::rewind::{RecordingError, Start, rewind};
use super::settings::KnownSettings;
use super::verify::extents::{Extents, Owner, owner};
use super::{Annotation, Recording, StackId};
use crate::course::{self, Course};
use crate::op::{Op, Sink, Workload, WorkloadError};
use crate::ops::Ops;
use crate::start::StartState;
use crate::surroundings::Change;

/// The prefix of the tag of a request that failed when recorded.
pub const FAILED: &str = course::FAILED;

/// The tag of a request without the mark that it failed when recorded.
#[must_use]
pub fn without_mark(tag: &str) -> &str {
    let marked = tag.strip_prefix(FAILED);
    marked.map_or(tag, |origin| origin.trim_start_matches(": "))
}

/// A recording as a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedWorkload {
    name: String,
    ops: Ops,
    /// Requests that failed when recorded.
    failures: u64,
    remarks: Vec<String>,
    start: Option<Arc<StartState>>,
}

impl RecordedWorkload {
    /// The workload of a recording, called `name` in results.
    ///
    /// # Errors
    /// [`RecordingError`] if PyTorch's allocator cannot have made the recording, and it lacks the beginning of the
    /// program. A complete history of another allocator has all requests.
    pub fn new(name: impl Into<String>, recording: &Recording) -> Result<Self, RecordingError> {
        let known = recording.settings()?;
        let start =
            rewind(recording, &known).or_else(|error| before_everything(recording, error))?;
        let collects_garbage = known.settings.garbage_collection_threshold() > 0.0;
        let mut writer = Writer::new(recording, &start);
        writer.live_at_start(&start);
        writer.marks_of_steps(0);
        let calls = calls(recording, collects_garbage);
        let mut pool_calls = pool_calls(recording, &calls);
        for (index, call) in calls.iter().enumerate() {
            writer.call(call, pool_calls.remove(&index).unwrap_or_default());
        }
        Ok(Self {
            name: name.into(),
            start: state_at(recording, &start, &writer.streams, known),
            ops: writer.ops,
            failures: writer.failures,
            remarks: start.remarks,
        })
    }

    /// Missing information, one sentence each.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
}

impl Workload for RecordedWorkload {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut course = Course::new(Some(self.failures));
        for op in self.ops.iter() {
            if !course.send(op, sink)? {
                break;
            }
        }
        Ok(())
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.start.as_ref()
    }

    fn recorded_failures(&self) -> Option<u64> {
        Some(self.failures)
    }
}

/// The start of a complete history of another allocator, to which the rules by which a recording is rewound do not
/// apply: nothing is reserved.
fn before_everything(
    recording: &Recording,
    error: RecordingError,
) -> Result<Start, RecordingError> {
    let contradicts = matches!(error, RecordingError::End(_) | RecordingError::Entry { .. });
    if !contradicts || !is_consistent(recording) {
        return Err(error);
    }
    let remark =
        format!("not recorded from PyTorch's allocator ({error}); only its requests are used");
    Ok(Start {
        remarks: vec![remark],
        ..Start::default()
    })
}

/// The state at the start of a recording, with the numbers that the workload gives to streams.
fn state_at(
    recording: &Recording,
    start: &Start,
    streams: &[StreamId],
    known: KnownSettings,
) -> Option<Arc<StartState>> {
    let KnownSettings { settings, conf, .. } = known;
    // The owners of pages, with their first address and their last.
    let mut owners: Vec<(Owner, (DeviceAddr, DeviceAddr))> = Vec::new();
    for run in start.segments.iter().filter(|run| run.is_expandable) {
        match owners.iter_mut().find(|(known, _)| *known == owner(run)) {
            Some((_, (_, end))) => *end = run.end(),
            None => owners.push((owner(run), (run.address, run.end()))),
        }
    }
    let mut bases: HashMap<DeviceAddr, DeviceAddr> = HashMap::new();
    if !owners.is_empty() {
        let extents = Extents::of(recording, start, &settings);
        let memory = extents.most_memory(&settings);
        for (_, pages) in owners {
            bases.insert(pages.0, extents.base(pages, memory, &settings));
        }
    }
    let mut segments = start.segments.clone();
    for segment in &mut segments {
        let number = streams.binary_search(&segment.stream).unwrap_or(0);
        segment.stream = StreamId::nth(u32::try_from(number).unwrap_or(u32::MAX));
    }
    let base_of = |first: &SegmentInfo| bases.get(&first.address).copied();
    let base_of = |first: &SegmentInfo| base_of(first).unwrap_or(first.address);
    StartState::new(segments, base_of, settings, conf).map(Arc::new)
}

struct Writer<'a> {
    recording: &'a Recording,
    streams: Vec<StreamId>,
    /// The time and the name of each step, in order.
    steps: std::vec::IntoIter<(u64, String)>,
    next_step: Option<(u64, String)>,
    live: HashMap<DeviceAddr, u64, FixedState>,
    /// The origins of the stacks seen so far.
    origins: HashMap<StackId, String, FixedState>,
    waits: Waits,
    next_id: u64,
    ops: Ops,
    failures: u64,
}

impl<'a> Writer<'a> {
    fn new(recording: &'a Recording, start: &Start) -> Self {
        let entries = recording.entries.iter().map(|entry| entry.stream);
        let streams: BTreeSet<StreamId> = start
            .segments
            .iter()
            .map(|segment| segment.stream)
            .chain(entries)
            .chain([StreamId::DEFAULT])
            .collect();
        let mut steps = steps(&recording.annotations).into_iter();
        Self {
            recording,
            waits: Waits::new(u32::try_from(streams.len()).unwrap_or(u32::MAX)),
            streams: streams.into_iter().collect(),
            next_step: steps.next(),
            steps,
            live: HashMap::default(),
            origins: HashMap::default(),
            next_id: 0,
            ops: Ops::default(),
            failures: 0,
        }
    }

    fn live_at_start(&mut self, start: &Start) {
        let entries = self.recording.entries.iter();
        let touched: HashSet<DeviceAddr, FixedState> = entries.map(|entry| entry.addr).collect();
        for segment in &start.segments {
            let is_private = segment.pool != MempoolId::DEFAULT;
            if is_private {
                self.ops.push(Op::Pool(PoolCall::Begin(segment.pool)));
            }
            for block in segment.blocks.iter().filter(|block| block.is_active()) {
                // Some versions did not record the requested size.
                let bytes = match block.requested_size {
                    0 => block.size,
                    bytes => bytes,
                };
                // The stack is known for blocks that stay live to the end.
                let addr = block.address;
                let stack = self
                    .recording
                    .block_stacks
                    .get(&addr)
                    .filter(|_| !touched.contains(&addr))
                    .copied();
                self.malloc(
                    addr,
                    bytes,
                    segment.stream,
                    stack.unwrap_or_default(),
                    false,
                );
            }
            if is_private {
                self.ops.push(Op::Pool(PoolCall::End(segment.pool)));
            }
        }
    }

    fn malloc(
        &mut self,
        addr: DeviceAddr,
        bytes: u64,
        stream: StreamId,
        stack: StackId,
        failed: bool,
    ) {
        let stacks = &self.recording.stacks;
        let origin = self.origins.entry(stack).or_insert_with(|| {
            let stack = stacks.get(stack.0 as usize);
            stack.map_or_else(String::new, super::Stack::origin)
        });
        let tag = if failed {
            &format!("{FAILED}: {origin}")
        } else {
            &*origin
        };
        let stream = self.streams.binary_search(&stream).unwrap_or(0) as u32;
        let id = self.next_id;
        self.next_id += 1;
        if failed {
            self.failures += 1;
        } else {
            self.live.insert(addr, id);
        }
        self.ops.push(Op::Malloc {
            id,
            bytes,
            stream,
            tag,
        });
    }

    fn call(&mut self, call: &Call, pools: PoolCalls) {
        let entries = &self.recording.entries[call.entries()];
        for pool in pools.released {
            self.ops.push(Op::Pool(PoolCall::Release(pool)));
        }
        if let Some(last) = entries.last() {
            self.marks_of_steps(last.time_us);
        }
        self.frees(call.kind, entries);
        for begin in pools.begins {
            self.ops.push(Op::Pool(begin));
        }
        let index = call.entries().end.saturating_sub(1);
        let stack = self.recording.entry_stacks.get(index).copied();
        match (call.kind, entries.last()) {
            (CallKind::Malloc | CallKind::FailedMalloc, Some(last)) => {
                let &TraceEntry {
                    addr, size, stream, ..
                } = last;
                let failed = call.kind == CallKind::FailedMalloc;
                self.malloc(addr, size, stream, stack.unwrap_or_default(), failed);
            }
            (CallKind::EmptyCache, _) => {
                for pool in pools.emptied {
                    self.ops.push(Op::Pool(PoolCall::Empty(pool)));
                }
                if !pools.empties_no_other {
                    self.ops.push(Op::EmptyCache);
                }
            }
            _ => {}
        }
        for end in pools.ends {
            self.ops.push(Op::Pool(end));
        }
    }

    /// Writes the frees among the entries of a call, requested or completed.
    fn frees(&mut self, kind: CallKind, entries: &[TraceEntry]) {
        let returns = |entry: &TraceEntry| entry.action.returns_memory();
        let is_malloc = matches!(kind, CallKind::Malloc | CallKind::FailedMalloc);
        let waited = is_malloc && (kind == CallKind::FailedMalloc || entries.iter().any(returns));
        for &TraceEntry { action, addr, .. } in entries {
            match action {
                Action::FreeRequested if kind == CallKind::FreeRequest => {
                    if let Some(id) = self.live.remove(&addr) {
                        self.free_later(addr, id);
                    }
                }
                Action::FreeCompleted => {
                    for stream in self.waits.end(addr, waited) {
                        let over = Change::FinishEvents { stream, count: 1 };
                        self.ops.push(Op::Surroundings(over));
                    }
                    // Requested in the same call, or before the first entry.
                    if let Some(id) = self.live.remove(&addr) {
                        self.ops.push(Op::Free { id });
                    }
                }
                _ => {}
            }
        }
    }

    /// Writes a free that waits for an event on a separate stream.
    fn free_later(&mut self, addr: DeviceAddr, id: u64) {
        let stream = self.waits.begin(addr);
        self.ops.push(Op::RecordStream { id, stream });
        self.ops.push(Op::Surroundings(Change::HoldEvents(true)));
        self.ops.push(Op::Free { id });
        self.ops.push(Op::Surroundings(Change::HoldEvents(false)));
    }

    /// Writes the marks of the steps that begin before `time_us`.
    fn marks_of_steps(&mut self, time_us: u64) {
        while let Some((_, name)) = self.next_step.take_if(|(begins, _)| *begins <= time_us) {
            self.ops.push(Op::Mark { tag: &name });
            self.next_step = self.steps.next();
        }
    }
}

/// The time and the name of each step, in order.
fn steps(annotations: &[Annotation]) -> Vec<(u64, String)> {
    let profiled = annotations
        .iter()
        .filter(|annotation| annotation.is_start)
        .filter_map(|annotation| {
            let number: u64 = annotation
                .name
                .strip_prefix("ProfilerStep#")?
                .parse()
                .ok()?;
            Some((annotation.time_us, format!("step {number}")))
        });
    let mut steps: Vec<_> = profiled.collect();
    if steps.is_empty() {
        let is_end = |annotation: &&Annotation| {
            !annotation.is_start && annotation.name.starts_with("Optimizer.step#")
        };
        let ends = annotations
            .iter()
            .filter(is_end)
            .map(|annotation| annotation.time_us);
        steps.push((0, "step 0".to_owned()));
        steps.extend(
            (1..)
                .zip(ends)
                .map(|(n, time_us)| (time_us, format!("step {n}"))),
        );
        if steps.len() == 1 {
            return Vec::new();
        }
    }
    steps.sort_by_key(|&(time_us, _)| time_us);
    steps
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::Release;

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{number, recording, segment, short};
    use crate::op::Answer;

    /// The operations, one a line, if the requests with these ids fail.
    fn operations(program: &RecordedWorkload, fail: &[u64]) -> String {
        let mut told = Vec::new();
        let mut sink = |op: Op<'_>| {
            let fails = matches!(op, Op::Malloc { id, .. } if fail.contains(&id));
            told.push(match op {
                Op::Malloc { id, .. } if fails => format!("{id} fails"),
                Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                } => {
                    let text = format!("malloc {id} of {} on {stream} {tag}", short(bytes));
                    text.trim_end().to_owned()
                }
                Op::Free { id } => format!("free {id}"),
                Op::RecordStream { id, stream } => format!("{id} on {stream}"),
                Op::Surroundings(change) => format!("{change:?}"),
                Op::Limit { bytes } => format!("limit {bytes:?}"),
                Op::Pool(call) => format!("{call:?}"),
                Op::EmptyCache => "empty".to_owned(),
                Op::Mark { tag } => tag.to_owned(),
            });
            Ok(if fails {
                Answer::OutOfMemory
            } else {
                Answer::Done
            })
        };
        program.emit(&mut sink).unwrap();
        told.join("\n")
    }

    #[test]
    fn a_recording_is_a_workload() {
        cases::check("src/formats/snapshot/cases/workload.txt", |text| {
            let (fail, text) = match text.strip_prefix("fails ") {
                Some(text) => text.split_once('\n').unwrap(),
                None => ("", text),
            };
            let fail: Vec<u64> = fail.split_whitespace().map(number).collect();
            let recording = recording(text);
            let workload = RecordedWorkload::new("test", &recording).unwrap();
            let failures = text.lines().filter(|line| line.starts_with("oom")).count();
            assert_eq!(workload.recorded_failures(), Some(failures as u64));
            operations(&workload, &fail)
        });
    }

    #[test]
    fn the_mark_of_a_failed_request_is_in_front_of_its_origin() {
        for (tag, origin) in [
            (
                "failed when recorded: addmm (train.py:24)",
                "addmm (train.py:24)",
            ),
            ("failed when recorded: ", ""),
            ("failed when recorded", ""),
            ("addmm: x", "addmm: x"),
            ("", ""),
        ] {
            assert_eq!(without_mark(tag), origin, "{tag}");
        }
    }

    /// The pages at the start of its range were mapped later.
    #[test]
    fn an_expandable_segment_begins_where_its_range_does() {
        let start = Start {
            segments: vec![segment("140M pages on 7 | 20M")],
            ..Start::default()
        };
        let known = KnownSettings::of(Release::DEFAULT, "expandable_segments:True").unwrap();
        let recording = recording("segment 100M pages on 7 | 60M");
        let state = state_at(&recording, &start, &[StreamId(0), StreamId(7)], known).unwrap();
        let parts = state.parts();
        assert_eq!(parts.len(), 1, "{parts:?}");
        assert_eq!(parts[0].offset, number("40M"));
        assert_eq!(parts[0].segment.stream, StreamId::nth(1));
    }
}
