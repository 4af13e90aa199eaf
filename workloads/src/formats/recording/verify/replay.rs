//! The calls of a recording, one by one, through the reference on a device that answers as recorded.

use std::collections::{BTreeMap, HashMap};

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::address::Placement;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::{Action, HistoryOptions, TraceEntry};
use coalesce_alloc::pytorch::restore::RestoreError;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use foldhash::fast::FixedState;

use super::super::Recording;
use super::super::calls::{Call, CallKind, calls};
use super::super::rewind::{KindsByAddress, RecordingError, Start, rewind};
use super::answers::Answers;
use super::extents::{Extents, Owner, owner};
use super::guesses::Guesses;

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
        let known = recording.settings()?;
        let start = rewind(recording, &known)?;
        let settings = known.settings;
        let kinds = KindsByAddress::of(recording, &settings);
        Ok(Self {
            recording,
            extents: Extents::of(recording, &start, &kinds),
            calls: calls(recording, settings.garbage_collection_threshold() > 0.0),
            settings,
            start,
        })
    }

    /// Whether there are expandable segments.
    pub(super) fn is_expandable(&self) -> bool {
        self.extents.is_any_owned()
    }

    /// The most memory that the device can have had, in bytes.
    pub(super) fn most_memory(&self) -> u64 {
        self.extents.most_memory(&self.settings)
    }

    /// The most memory for which a reserved range from `base` on ends before `end`, in bytes.
    pub(super) fn memory_between(&self, base: DeviceAddr, end: DeviceAddr) -> u64 {
        self.extents.memory_between(base, end, &self.settings)
    }

    pub(super) fn entries_of(&self, call: &Call) -> &'a [TraceEntry] {
        &self.recording.entries[call.entries.clone()]
    }

    /// Where the segments of the start are placed on a device of `memory` bytes: in the order in which
    /// they are restored.
    ///
    /// # Errors
    /// If the pages are too far apart: the allocator has a table of them, with those between.
    fn placements(&self, memory: u64) -> Result<Vec<Placement>, RestoreError> {
        /// All of the addresses that 16 streams reserve on a device of 512 GiB, in bytes.
        const MOST_ADDRESSES: u64 = 9 << 40;
        let segments = &self.start.segments;
        let (runs, plain): (Vec<_>, Vec<_>) = segments.iter().partition(|s| s.is_expandable);
        let mut placements: Vec<Placement> = plain
            .iter()
            .map(|segment| Placement {
                bytes: Some(segment.total_size()),
                addr: segment.address,
            })
            .collect();
        // Who owns pages, and from where to where.
        let mut owners: Vec<(Owner, DeviceAddr, DeviceAddr)> = Vec::new();
        for run in runs {
            let end = run.address.offset(run.total_size());
            match owners.iter_mut().find(|(known, ..)| *known == owner(run)) {
                Some((_, _, last)) => *last = end,
                None => owners.push((owner(run), run.address, end)),
            }
        }
        let mut addresses = 0_u64;
        for (_, first, end) in owners {
            let base = self.extents.base((first, end), memory, &self.settings);
            addresses = addresses.saturating_add(end.offset_from(base));
            if addresses > MOST_ADDRESSES {
                return Err(RestoreError::Impossible {
                    segment: first,
                    reason: format!(
                        "with those of other streams its pages spread over more than \
                         {MOST_ADDRESSES} bytes of addresses"
                    ),
                });
            }
            placements.push(Placement {
                bytes: None,
                addr: base,
            });
        }
        Ok(placements)
    }
}

/// What the allocator did at a call, where it is not what was recorded.
pub(super) struct Deviation {
    pub(super) ours: Vec<TraceEntry>,
    /// What the allocator said if it failed other than for lack of memory.
    pub(super) error: Option<Error>,
    /// Where the reserved ranges of addresses began before the call, and their bytes.
    ranges: BTreeMap<DeviceAddr, u64>,
}

impl Deviation {
    /// Where the range begins in which `addr` lay before the call.
    pub(super) fn range_around(&self, addr: DeviceAddr) -> Option<DeviceAddr> {
        let (&start, &bytes) = self.ranges.range(..=addr).next_back()?;
        (addr.offset_from(start) < bytes).then_some(start)
    }
}

/// Where pending frees wait: each for a stream of its own, which is done when the recording says.
const FIRST_STAND_IN: u64 = 1 << 63;

/// A replay under way.
pub(super) struct Replay<'a> {
    plan: &'a Plan<'a>,
    allocator: PyTorch<Tap<SimDevice, Answers>>,
    /// The streams that stand in for those that pending frees wait for, by the address of the block.
    waiting: HashMap<DeviceAddr, StreamId, FixedState>,
    next_stand_in: u64,
}

impl<'a> Replay<'a> {
    /// The state before the first entry, as far as it is known and otherwise as guessed.
    pub(super) fn new(plan: &'a Plan<'a>, guesses: &Guesses) -> Result<Self, RestoreError> {
        let mut device = SimDevice::new(&SimConfig {
            hold_events: true,
            ..SimConfig::with_capacity(guesses.memory)
        });
        device.follow_recording(plan.placements(guesses.memory)?);
        let device = Tap::over(device, Answers::default());
        let mut segments = plan.start.segments.clone();
        for segment in &mut segments {
            guesses.tails().add_to(segment);
        }
        // Whether the first completion was requested before the first entry or at it nobody knows: it is
        // made a free of its own.
        let first = plan.recording.entries.first();
        let first = first.filter(|entry| entry.action == Action::FreeCompleted);
        let mut pending = Vec::new();
        for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            if block.state == BlockState::ActivePendingFree {
                block.state = BlockState::ActiveAllocated;
                if first.is_none_or(|entry| entry.addr != block.address) {
                    pending.push(block.address);
                }
            }
        }
        let settings = plan.settings.clone();
        let allocator = PyTorch::restore(device, settings, &segments)?;
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
        let ranges = self.allocator.driver().hook().ranges().clone();
        self.follow(recorded);
        let lost = self.request_lost_by(call, recorded);
        let outcome = match lost {
            Some(addr) => self.allocator.free(addr),
            None => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.perform(call, recorded));
        let ours = self.allocator.history().copied();
        let is_lost =
            |entry: &TraceEntry| entry.action == Action::FreeRequested && Some(entry.addr) == lost;
        let ours: Vec<TraceEntry> = ours.filter(|entry| !is_lost(entry)).collect();
        match outcome {
            Ok(()) | Err(Error::OutOfMemory(_)) if is_same(&ours, recorded) => Ok(()),
            outcome => Err(Deviation {
                ours,
                error: outcome
                    .err()
                    .filter(|error| !matches!(error, Error::OutOfMemory(_))),
                ranges,
            }),
        }
    }

    /// The block whose free completes at this call without ever having been requested: the ring has lost
    /// that.
    fn request_lost_by(&self, call: &Call, recorded: &[TraceEntry]) -> Option<DeviceAddr> {
        let first = recorded.first().filter(|_| call.entries.start == 0)?;
        let lost = first.action == Action::FreeCompleted && !self.waiting.contains_key(&first.addr);
        lost.then_some(first.addr)
    }

    /// Lets the device answer as it did in these entries.
    fn follow(&mut self, recorded: &[TraceEntry]) {
        let device = self.allocator.driver_mut();
        let answers = device.hook_mut();
        answers.expect(
            recorded
                .iter()
                .filter(|entry| entry.action.is_about_segments())
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
            // Only the return of all cached memory waits for streams without a malloc.
            CallKind::Completions if self.has_waiting(recorded) => self.allocator.empty_cache(),
            CallKind::Completions => Ok(()),
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

    /// Whether a block is among these that waits for its stream.
    fn has_waiting(&self, recorded: &[TraceEntry]) -> bool {
        let mut recorded = recorded.iter();
        recorded.any(|entry| self.waiting.contains_key(&entry.addr))
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
        let actions = || recorded.iter().map(|entry| entry.action);
        let completed = actions().filter(|&action| action == Action::FreeCompleted);
        let completes = completed.count() == self.waiting.len();
        let collects = self.plan.settings.garbage_collection_threshold() > 0.0;
        let lacks = |action: Action| action.returns_memory() || action == Action::Oom;
        completes && !collects && actions().any(lacks)
    }
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
