//! Replays the calls of a recording with the reference, on a device that answers as recorded.

use std::collections::HashMap;
use std::ops::Range;

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::address::Placement;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::{Action, HistoryOptions, TraceEntry};
use coalesce_alloc::pytorch::restore::RestoreError;
use coalesce_alloc::snapshot::{BlockState, SegmentInfo};
use foldhash::fast::FixedState;

use super::super::calls::{Call, CallKind};
use super::super::emptied::{emptied_alone, emptied_pools};
use super::answers::Answers;
use super::guesses::Guesses;
use super::pools::Pools;
use super::prepared::{Deviation, Prepared};

/// The first of the streams that pending frees wait for. Each free has a separate stream, which finishes when
/// the recording completes the free.
const FIRST_STAND_IN: u64 = 1 << 63;

/// A running replay.
pub(super) struct Replay<'a> {
    prepared: &'a Prepared<'a>,
    allocator: PyTorch<Tap<SimDevice, Answers>>,
    /// The stand-in streams that pending frees wait for, by the address of the block.
    waiting: HashMap<DeviceAddr, StreamId, FixedState>,
    /// The private pools that were gone at the end.
    pools: Pools,
    /// Whether any entry may concern a private pool.
    has_private_pools: bool,
    next_stand_in: u64,
    /// The number of entries in the history of the allocator before the current call.
    written: usize,
}

impl<'a> Replay<'a> {
    /// Restores the state before the first entry, guessing what is unknown.
    pub(super) fn new(prepared: &'a Prepared<'a>, guesses: &Guesses) -> Result<Self, RestoreError> {
        let mut device = SimDevice::new(&SimConfig {
            hold_events: true,
            ..SimConfig::with_capacity(guesses.memory)
        });
        device.follow_recording(prepared.placements(guesses.memory)?);
        let device = Tap::over(device, Answers::default());
        let mut segments = prepared.start.segments.clone();
        for segment in &mut segments {
            guesses.tails().add_to(segment);
            if let Some(pool) = guesses.pools.around(&prepared.gone, segment.address, 0)
                && !guesses.pools.is_empty()
            {
                segment.pool = pool;
            }
        }
        // It is unknown whether the first completion was requested before the first entry or by it:
        // `make` requests it.
        let first = prepared
            .recording
            .entries
            .first()
            .filter(|entry| entry.action == Action::FreeCompleted);
        let mut pending = Vec::new();
        for block in segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            if block.state == BlockState::ActivePendingFree {
                block.state = BlockState::ActiveAllocated;
                if first.is_none_or(|entry| entry.addr != block.address) {
                    pending.push(block.address);
                }
            }
        }
        let settings = prepared.settings.clone();
        let allocator = PyTorch::restore(device, settings, &segments)?;
        let mut replay = Self {
            prepared,
            allocator,
            waiting: HashMap::default(),
            pools: guesses.pools.clone(),
            has_private_pools: !guesses.pools.is_empty()
                || !prepared.recording.entry_pools.is_empty()
                || prepared.recording.segments.iter().any(is_private),
            next_stand_in: FIRST_STAND_IN,
            written: 0,
        };
        for addr in pending {
            replay.free_later(addr)?;
        }
        replay.clear_history();
        Ok(replay)
    }

    fn clear_history(&mut self) {
        self.written = 0;
        self.allocator.record_history(Some(HistoryOptions {
            clear: true,
            ..HistoryOptions::default()
        }));
    }

    /// Limits reserved memory to a fraction of the device memory.
    pub(super) fn set_limit(&mut self, fraction: f64) -> Result<(), Error> {
        self.allocator.set_memory_fraction(fraction)
    }

    pub(super) fn segments(&self) -> Vec<SegmentInfo> {
        self.allocator.segments()
    }

    /// The number of retries.
    pub(super) fn retries(&self) -> u64 {
        self.allocator.stats().num_alloc_retries.cast_unsigned()
    }

    /// Makes a call. Fails if the allocator deviates from the recording.
    pub(super) fn make(&mut self, call: &Call) -> Result<(), Deviation> {
        /// Few enough to stay in the processor's cache.
        const MOST_WRITTEN: usize = 1 << 11;
        if self.written > MOST_WRITTEN {
            self.clear_history();
        }
        let recorded = self.prepared.entries_of(call);
        self.follow(recorded);
        let lost = self.request_lost_by(call, recorded);
        let outcome = match lost {
            Some(addr) => self.allocator.free(addr),
            None => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.perform(call, recorded));
        let is_lost =
            |entry: &TraceEntry| entry.action == Action::FreeRequested && Some(entry.addr) == lost;
        let history = || self.allocator.history().skip(self.written);
        let ours = || history().filter(|entry| !is_lost(entry));
        let is_possible = matches!(outcome, Ok(()) | Err(Error::OutOfMemory(_)));
        if !is_possible || !is_same(ours(), recorded) && !is_same_but_for_order(ours(), recorded) {
            return Err(Deviation {
                ours: ours().copied().collect(),
                error: outcome
                    .err()
                    .filter(|error| !matches!(error, Error::OutOfMemory(_))),
                ranges: self.allocator.driver().hook().ranges_before().clone(),
            });
        }
        self.written = self.allocator.history().count();
        Ok(())
    }

    /// The block whose free completes at this call, if the ring buffer lost the request of the free.
    fn request_lost_by(&self, call: &Call, recorded: &[TraceEntry]) -> Option<DeviceAddr> {
        let first = recorded.first().filter(|_| call.entries().start == 0)?;
        let lost = first.action == Action::FreeCompleted && !self.waiting.contains_key(&first.addr);
        lost.then_some(first.addr)
    }

    /// Makes the device answer as in these entries.
    fn follow(&mut self, recorded: &[TraceEntry]) {
        let device = self.allocator.driver_mut();
        let answers = device.hook_mut();
        answers.expect(
            recorded
                .iter()
                .filter(|entry| entry.action.is_about_segments())
                .copied(),
        );
        // Most calls take no memory.
        if !recorded.iter().any(|entry| entry.action.takes_memory()) {
            return;
        }
        let places: Vec<Placement> = recorded
            .iter()
            .filter_map(|entry| match entry.action {
                Action::SegmentAlloc => Some(Placement {
                    bytes: Some(entry.size),
                    addr: entry.addr,
                }),
                Action::SegmentMap if !answers.is_reserved(entry.addr) => Some(Placement {
                    bytes: None,
                    addr: entry.addr,
                }),
                _ => None,
            })
            .collect();
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
                let is_known = !self.prepared.recording.entry_pools.is_empty();
                let pool = match call.kind {
                    // The entry of a failure has no address.
                    CallKind::FailedMalloc if !is_known => MempoolId::DEFAULT,
                    _ => self.pool_at(call.entries().end - 1),
                };
                for pool in self.returned_pools(call.entries()) {
                    self.release(pool)?;
                }
                self.malloc(last, pool)
            }
            CallKind::Free => self.allocator.free(first.addr),
            CallKind::FreeRequest => self.free_later(first.addr),
            CallKind::EmptyCache => self.empty_cache(call),
            // Without a malloc, only empty_cache waits for streams.
            CallKind::Completions if self.has_waiting(recorded) => self.allocator.empty_cache(),
            CallKind::Completions => Ok(()),
            CallKind::Snapshot => {
                self.allocator.observed_segments(MempoolId::DEFAULT);
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

    /// The pool of an entry.
    fn pool_at(&self, entry: usize) -> MempoolId {
        let recording = self.prepared.recording;
        if !self.has_private_pools {
            return MempoolId::DEFAULT;
        }
        let gone = recording
            .entry_pools
            .is_empty()
            .then_some(entry)
            .and_then(|entry| {
                let addr = recording.entries.get(entry)?.addr;
                self.pools.around(&self.prepared.gone, addr, entry)
            });
        gone.unwrap_or_else(|| recording.pool_of(entry))
    }

    /// The private pools from which these entries return segments, in order.
    fn returned_pools(&self, range: Range<usize>) -> Vec<MempoolId> {
        let entries = &self.prepared.recording.entries;
        emptied_pools(entries, range, |entry| self.pool_at(entry))
    }

    /// Removes all users of a pool, whose segments are about to be returned.
    fn release(&mut self, pool: MempoolId) -> Result<(), Error> {
        for _ in 0..self.allocator.pool_use_count(pool).unwrap_or(0) {
            self.allocator.release_pool(pool)?;
        }
        Ok(())
    }

    /// Returns all cached memory: that of the default pools first, so that private pools before it were emptied at the
    /// end of a `MemPool`.
    fn empty_cache(&mut self, call: &Call) -> Result<(), Error> {
        let all = call.entries();
        let entries = &self.prepared.recording.entries;
        let emptied = emptied_alone(entries, all.clone(), |entry| self.pool_at(entry));
        for pool in self.returned_pools(emptied.clone()) {
            self.release(pool)?;
            self.allocator.empty_pool(pool)?;
        }
        if emptied.end < all.end {
            for pool in self.returned_pools(emptied.end..all.end) {
                self.release(pool)?;
            }
            self.allocator.empty_cache()?;
        }
        Ok(())
    }

    /// Whether one of these blocks waits for its stream.
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

    /// Finishes the streams of the frees that complete in these entries.
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

    /// Whether a malloc waited for all streams in order to return all cached memory, instead of finding
    /// them finished: it returned memory or failed, and no block waits any more. (The garbage collector
    /// returns memory without waiting.)
    fn waits_for_all(&self, recorded: &[TraceEntry]) -> bool {
        let actions = || recorded.iter().map(|entry| entry.action);
        let completed = actions().filter(|&action| action == Action::FreeCompleted);
        let completes = completed.count() == self.waiting.len();
        let collects = self.prepared.settings.garbage_collection_threshold() > 0.0;
        let lacks = |action: Action| action.returns_memory() || action == Action::Oom;
        completes && !collects && actions().any(lacks)
    }
}

fn is_private(segment: &SegmentInfo) -> bool {
    segment.pool != MempoolId::DEFAULT
}

/// What must be equal in two entries.
fn comparable(entry: &TraceEntry) -> (Action, DeviceAddr, u64, StreamId) {
    // The address of a failure is the free memory of the device.
    let addr = match entry.action {
        Action::Oom => DeviceAddr::NULL,
        _ => entry.addr,
    };
    (entry.action, addr, entry.size, entry.stream)
}

/// Whether two calls did the same in the same order.
fn is_same<'e>(ours: impl Iterator<Item = &'e TraceEntry>, recorded: &[TraceEntry]) -> bool {
    ours.map(comparable).eq(recorded.iter().map(comparable))
}

/// As [`is_same`], in any order of the waiting frees that complete: it depends on the streams that they wait for, which
/// are not recorded.
fn is_same_but_for_order<'e>(
    ours: impl Iterator<Item = &'e TraceEntry>,
    recorded: &[TraceEntry],
) -> bool {
    let by_address = |entries: &mut dyn Iterator<Item = &TraceEntry>| {
        let (mut completed, others): (Vec<_>, Vec<_>) = entries
            .map(comparable)
            .partition(|&(action, ..)| action == Action::FreeCompleted);
        completed.sort_by_key(|&(_, addr, ..)| addr);
        (completed, others)
    };
    by_address(&mut { ours }) == by_address(&mut recorded.iter())
}

#[cfg(test)]
mod tests;
