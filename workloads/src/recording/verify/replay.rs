//! The calls of a recording, one by one, through the reference on a device that answers as recorded.

use std::collections::HashMap;

use allocator::driver::sim::address::Placement;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::driver::tap::Tap;
use allocator::driver::{DeviceAddr, StreamId};
use allocator::error::Error;
use allocator::history::{Action, HistoryOptions, TraceEntry};
use allocator::mempool::MempoolId;
use allocator::policy::pytorch::DeviceCachingAllocator;
use allocator::policy::pytorch::restore::RestoreError;
use allocator::settings::Settings;
use allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};
use foldhash::fast::FixedState;

use super::super::Recording;
use super::super::calls::{Call, CallKind, calls};
use super::super::rewind::{KindsByAddress, RecordingError, Start, rewind};
use super::answers::Answers;
use super::extents::{Extents, owner};
use super::tails::Tails;

/// A recording made ready to be replayed, as often as one likes.
pub(super) struct Plan<'a> {
    pub(super) recording: &'a Recording,
    pub(super) settings: Settings,
    pub(super) start: Start,
    pub(super) calls: Vec<Call>,
    extents: Extents,
}

impl<'a> Plan<'a> {
    pub(super) fn new(recording: &'a Recording) -> Result<Self, RecordingError> {
        let settings = recording.settings()?;
        let start = rewind(recording, &settings)?;
        let kinds = KindsByAddress::of(recording, &settings);
        Ok(Self {
            recording,
            extents: Extents::of(recording, &start, &kinds),
            calls: calls(recording, settings.garbage_collection_threshold() > 0.0),
            settings,
            start,
        })
    }

    /// The most memory that the device can have had, in bytes.
    pub(super) fn most_memory(&self) -> u64 {
        self.extents.most_memory(self.settings.large_segment_size())
    }

    pub(super) fn entries_of(&self, call: &Call) -> &'a [TraceEntry] {
        &self.recording.entries[call.entries.clone()]
    }

    /// Where the segments of the start are placed: in the order in which they are restored.
    fn placements(&self) -> Vec<Placement> {
        let segments = &self.start.segments;
        let (runs, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
        let mut placements: Vec<Placement> = plain
            .iter()
            .map(|segment| Placement {
                bytes: Some(segment.total_size()),
                addr: segment.address,
            })
            .collect();
        let mut owners = Vec::new();
        for run in runs {
            let owner = owner(run);
            if !owners.contains(&owner) {
                owners.push(owner);
                let addr = self.extents.base(owner).unwrap_or(run.address);
                placements.push(Placement { bytes: None, addr });
            }
        }
        placements
    }
}

/// What the allocator did at a call, where it is not what was recorded.
pub(super) struct Deviation {
    pub(super) ours: Vec<TraceEntry>,
    /// What the allocator said if it failed other than for lack of memory.
    pub(super) error: Option<Error>,
}

/// Where pending frees wait: each for a stream of its own, which is done when the recording says.
const FIRST_STAND_IN: u64 = 1 << 63;

/// A replay under way.
pub(super) struct Replay<'a> {
    plan: &'a Plan<'a>,
    allocator: DeviceCachingAllocator<Tap<SimDevice, Answers>>,
    /// The streams that stand in for those that pending frees wait for, by the address of the block.
    waiting: HashMap<DeviceAddr, StreamId, FixedState>,
    next_stand_in: u64,
}

impl<'a> Replay<'a> {
    /// The state before the first entry, on a device of `memory` bytes. Some blocks have `tails` of so
    /// many bytes more than the plan says.
    pub(super) fn new(
        plan: &'a Plan<'a>,
        memory: u64,
        tails: &Tails,
    ) -> Result<Self, RestoreError> {
        let mut device = SimDevice::new(&SimConfig {
            hold_events: true,
            ..SimConfig::with_capacity(memory)
        });
        device.follow_recording(plan.placements());
        let device = Tap::over(device, Answers::default());
        // A free that is the first entry lost its request: the block is taken to be in use until then.
        let first = plan
            .calls
            .first()
            .filter(|call| call.kind == CallKind::Completions);
        let orphans = first.map_or(&[][..], |call| plan.entries_of(call));
        let mut pending = Vec::new();
        let mut segments = plan.start.segments.clone();
        segments
            .iter_mut()
            .for_each(|segment| tails.add_to(segment));
        for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            if block.state == BlockState::ActivePendingFree {
                block.state = BlockState::ActiveAllocated;
                if !orphans.iter().any(|entry| entry.addr == block.address) {
                    pending.push(block.address);
                }
            }
        }
        let settings = plan.settings.clone();
        let allocator = DeviceCachingAllocator::restore(device, settings, &segments)?;
        let mut replay = Self {
            plan,
            allocator,
            waiting: HashMap::default(),
            next_stand_in: FIRST_STAND_IN,
        };
        for addr in pending {
            replay.free_later(addr)?;
        }
        Ok(replay)
    }

    /// Limits the memory that may be held to so many bytes.
    pub(super) fn set_limit(&mut self, fraction: f64) -> Result<(), Error> {
        self.allocator.set_memory_fraction(fraction)
    }

    pub(super) fn segments(&self) -> Vec<SegmentInfo> {
        self.allocator.segments()
    }

    /// Times all cached memory was returned because there was no more.
    pub(super) fn retries(&self) -> u64 {
        self.allocator.stats().num_alloc_retries.cast_unsigned()
    }

    /// Makes a call. Fails if the allocator does not do what is recorded.
    pub(super) fn make(&mut self, call: &Call) -> Result<(), Deviation> {
        let recorded = self.plan.entries_of(call);
        self.allocator.record_history(Some(HistoryOptions {
            clear: true,
            ..HistoryOptions::default()
        }));
        self.follow(recorded);
        let outcome = self.perform(call, recorded);
        let ours: Vec<TraceEntry> = self.allocator.history().copied().collect();
        let is_lost_request = |index: usize| {
            call.kind == CallKind::Completions
                && ours
                    .get(index)
                    .is_some_and(|entry| entry.action == Action::FreeRequested)
        };
        let told = (0..ours.len()).filter(|&index| !is_lost_request(index));
        let told: Vec<TraceEntry> = told.map(|index| ours[index]).collect();
        match outcome {
            Ok(()) | Err(Error::OutOfMemory(_)) if is_same(&told, recorded) => Ok(()),
            outcome => Err(Deviation {
                ours,
                error: outcome
                    .err()
                    .filter(|error| !matches!(error, Error::OutOfMemory(_))),
            }),
        }
    }

    /// Lets the device answer as it did in these entries.
    fn follow(&mut self, recorded: &[TraceEntry]) {
        let device = self.allocator.driver_mut();
        let answers = device.hook_mut();
        answers.expect(
            recorded
                .iter()
                .filter(|e| is_about_segments(e.action))
                .copied(),
        );
        let places = recorded.iter().filter_map(|entry| match entry.action {
            Action::SegmentAlloc => Some(Placement {
                bytes: Some(entry.size),
                addr: entry.addr,
            }),
            Action::SegmentMap if !answers.is_reserved(entry.addr) => Some(Placement {
                bytes: None,
                addr: entry.addr,
            }),
            _ => None,
        });
        let places: Vec<Placement> = places.collect();
        device.driver_mut().follow_recording(places);
    }

    fn perform(&mut self, call: &Call, recorded: &[TraceEntry]) -> Result<(), Error> {
        let (Some(first), Some(last)) = (recorded.first(), recorded.last()) else {
            return Ok(());
        };
        match call.kind {
            CallKind::Malloc | CallKind::FailedMalloc => {
                if !self.waits_for_all(recorded) {
                    self.complete(recorded);
                }
                let pool = match call.kind {
                    CallKind::Malloc => self.plan.recording.pool_of(call.entries.end - 1),
                    _ => MempoolId::DEFAULT,
                };
                self.malloc(last, pool)
            }
            CallKind::Free => self.allocator.free(first.addr),
            CallKind::FreeRequest => self.free_later(first.addr),
            CallKind::EmptyCache => self.allocator.empty_cache(),
            CallKind::Completions if self.waiting.contains_key(&first.addr) => {
                // Only the return of all cached memory waits for streams without a malloc.
                self.allocator.empty_cache()
            }
            CallKind::Completions => {
                let mut orphans = recorded.iter();
                orphans.try_for_each(|entry| self.allocator.free(entry.addr))
            }
            CallKind::Snapshot => {
                self.allocator.observed_segments();
                Ok(())
            }
        }?;
        for entry in recorded {
            if entry.action == Action::FreeCompleted {
                self.waiting.remove(&entry.addr);
            }
        }
        Ok(())
    }

    fn malloc(&mut self, recorded: &TraceEntry, pool: MempoolId) -> Result<(), Error> {
        if pool != MempoolId::DEFAULT {
            self.allocator
                .begin_allocate_to_pool(pool, Box::new(|_| true))?;
        }
        let placed = self.allocator.raw_malloc(recorded.size, recorded.stream);
        if pool != MempoolId::DEFAULT {
            self.allocator.end_allocate_to_pool(pool)?;
        }
        placed.map(|_| ())
    }

    fn free_later(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        let stream = StreamId(self.next_stand_in);
        self.next_stand_in += 1;
        self.waiting.insert(addr, stream);
        self.allocator.record_stream(addr, stream)?;
        self.allocator.free(addr)
    }

    /// Lets the streams finish for which the frees waited that completed.
    fn complete(&mut self, recorded: &[TraceEntry]) {
        let streams = self.allocator.driver_mut().driver_mut().streams_mut();
        for entry in recorded {
            if let Action::FreeCompleted = entry.action
                && let Some(&stream) = self.waiting.get(&entry.addr)
            {
                streams.complete(stream, 1);
            }
        }
    }

    /// Whether a malloc waited for all streams, to return all cached memory, and did not find them done
    /// when it began: memory was returned, or there was none, and no block is left that waits. (With a
    /// garbage collector memory is returned without waiting.)
    fn waits_for_all(&self, recorded: &[TraceEntry]) -> bool {
        let is = |action: Action| recorded.iter().filter(move |entry| entry.action == action);
        let returns = is(Action::SegmentFree)
            .chain(is(Action::SegmentUnmap))
            .count()
            > 0;
        let completes = is(Action::FreeCompleted).count() == self.waiting.len();
        let collects = self.plan.settings.garbage_collection_threshold() > 0.0;
        completes && !collects && (returns || is(Action::Oom).count() > 0)
    }
}

pub(super) fn is_about_segments(action: Action) -> bool {
    matches!(
        action,
        Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap
    )
}

/// Whether two calls did the same. In which order waiting frees complete is of no account: it follows
/// from which streams they wait for, which is not recorded.
fn is_same(ours: &[TraceEntry], recorded: &[TraceEntry]) -> bool {
    let comparable = |entries: &[TraceEntry]| {
        let told = entries.iter().map(|entry| {
            // Of a failure the address is the memory that the device had free.
            let addr = match entry.action {
                Action::Oom => DeviceAddr::NULL,
                _ => entry.addr,
            };
            (entry.action, addr, entry.size, entry.stream)
        });
        let (mut completed, others): (Vec<_>, Vec<_>) =
            told.partition(|&(action, ..)| action == Action::FreeCompleted);
        completed.sort_by_key(|&(_, addr, ..)| addr);
        (completed, others)
    };
    comparable(ours) == comparable(recorded)
}

/// All of segments but what free blocks remember of their last user.
pub(super) fn layout(segments: &[SegmentInfo]) -> Vec<(DeviceAddr, u64, BlockState)> {
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let told = |block: &BlockInfo| (block.address, block.size, block.state);
    let mut blocks: Vec<_> = blocks.map(told).collect();
    blocks.sort_by_key(|&(addr, ..)| addr);
    blocks
}
