//! A model of the driver's pool, for devices without one.
//!
//! # Rules and sources
//!
//! The CUDA C++ Programming Guide (12.9, "Stream Ordered Memory Allocator") says which memory a stream may reuse:
//!
//! - memory freed on the same stream;
//! - memory of another stream, if the work before its free is complete (`cudaMemPoolReuseAllowOpportunistic`), if the stream
//!   waits for that work by an event of the program (`cudaMemPoolReuseFollowEventDependencies`), or if the pool makes it
//!   wait (`cudaMemPoolReuseAllowInternalDependencies`). All three are on by default;
//! - above the release threshold, free memory is returned when the device is idle.
//!
//! The rest was measured on an H100 with driver 580.159.04 (`scripts/gpu/driver_calls.py`, `tests/pool`). A request takes the
//! first of
//!
//! 1. the memory freed on its stream;
//! 2. free memory that all streams may use, in a gap whose pages are all there;
//! 3. the complete memory freed on another stream, of several the stream that was used first;
//! 4. the smallest gap, once all complete memory freed on streams, its own included, has become part of the memory that all
//!    may use: streams in the order of their first use, and of each stream the memory freed last first.
//!
//! Everywhere it takes the start of the smallest gap that is large enough, of equal ones the oldest. What remains of a gap, or
//! grows because memory beside it is freed, counts as new. Blocks are multiples of 512 bytes and lie side by side in
//! one range of addresses, across pages of 32 MiB. In the last case pages may be missing: those at the highest addresses
//! in free memory are mapped again, then new ones.
//!
//! # Pending work
//!
//! Each gap freed on a stream has a mark at the end of the work that the stream had at the free, and is complete once its
//! mark is, whatever the stream does afterwards. A gap that grows has the mark of the last free, and what remains of a gap
//! keeps its mark. If the smallest gap of another stream that is large enough is pending, step 3 takes the complete gap
//! that was freed first among those that are large enough. The pool makes no stream wait as long as the device has memory: recordings with and without
//! internal dependencies are the same.
//!
//! # What a policy does not see
//!
//! - The program's own waits between streams. The driver records a mark in a stream only when the next work is submitted to
//!   it, so the mark comes after all waits before that work. Before step 3 it takes memory for whose free the stream waits.
//!   And a stream counts as used once it waits for one that is used.
//! - Waits for the device, after which the driver shares the memory freed on all streams.
//!
//! Without them, every address and the reserved memory after every call are the same as on the H100, in the twenty recorded
//! programs and in random sequences on one and on three streams, idle or with pending work.
//!
//! A block used on other streams is freed on a stream of its own that waits for them, as by the [pool](super::pool). Nothing
//! else is submitted to that stream, so the last mark holds for all that was freed on it.
//!
//! The device accounts for the calls that the pool serves, and for those that move pages.

use std::collections::{BTreeMap, HashMap};

use crate::base::check::{Violation, ensure};
use crate::driver::calls::CallKind;
use crate::driver::{DeviceAddr, Driver, PoolSettings, StreamId, uncharged};
use crate::policy::fence::{Fences, Users};
use crate::policy::{Block, Policy, Refusal, Served};

use super::arena::Arena;
use super::freed::Freed;
use super::streams::PoolStreams;

/// The stream on which blocks are freed that several streams use.
const FREE_STREAM: StreamId = StreamId::nth(u32::MAX);

/// See the [module](self).
///
/// Invariant: live blocks, the memory freed on streams, and the gaps of the arena cover its range without overlap.
#[derive(Debug)]
pub(super) struct Model {
    settings: PoolSettings,
    arena: Arena,
    live: HashMap<DeviceAddr, u64>,
    streams: PoolStreams,
    users: Users,
    fences: Fences,
}

impl Model {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            arena: Arena::default(),
            live: HashMap::new(),
            streams: PoolStreams::default(),
            users: Users::default(),
            fences: Fences::default(),
        }
    }

    /// Takes free memory, except what pages are missing for.
    fn reuse(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Option<u64>> {
        let own = self.streams.of(stream).take(bytes);
        let found = own.or_else(|| self.arena.take(bytes));
        if found.is_some() || !self.settings.reuse_opportunistic {
            return Ok(found);
        }
        for other in self.streams.others(stream) {
            other.query(device)?;
            let taken = other.take_complete(bytes);
            if taken.is_some() {
                return Ok(taken);
            }
        }
        self.streams.of(stream).query(device)?;
        self.share(Freed::drain_complete);
        Ok(None)
    }

    /// Makes memory freed on the streams available to all.
    fn share(&mut self, drain: fn(&mut Freed) -> Vec<(u64, u64)>) {
        for (start, bytes) in self.streams.iter_mut().flat_map(drain) {
            self.arena.give(start, bytes);
        }
    }

    /// Takes memory whose pages are mapped for it. If the device has none, the stream waits for others, or the program does.
    fn grow(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<u64> {
        match self.arena.place(device, bytes) {
            Err(Refusal::OutOfMemory) => {
                if let Some(start) = self.follow(device, bytes, stream)? {
                    return Ok(start);
                }
                device.synchronize_device()?;
                self.share(Freed::drain);
                self.arena.place(device, bytes)
            }
            placed => placed,
        }
    }

    /// Takes memory freed on another stream, and makes `stream` wait for the work before that free.
    fn follow(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Option<u64>> {
        if !self.settings.reuse_internal_dependencies {
            return Ok(None);
        }
        for other in self.streams.others(stream) {
            if let Some(end) = other.mark_of(bytes) {
                uncharged(device, |device| device.wait_event(stream, end))?;
                return Ok(other.take(bytes));
            }
        }
        Ok(None)
    }

    /// Whether all work is complete on the streams that have free memory. Their memory is shared then.
    fn is_idle(&mut self, device: &mut dyn Driver) -> Served<bool> {
        let (fences, ids) = (&mut self.fences, self.streams.ids());
        let over = uncharged(device, |device| {
            let ends = fences.raise(device, &ids)?;
            let over = ends.is_over(device);
            fences.take_down(ends);
            over
        })?;
        if over {
            self.share(Freed::drain);
        }
        Ok(over)
    }

    /// Makes [`FREE_STREAM`] wait for all streams that use a block.
    fn hold_up(&mut self, device: &mut dyn Driver, users: &[StreamId]) -> Served {
        let fence = self.fences.raise(device, users)?;
        let held_up = fence.hold_up(device, FREE_STREAM);
        self.fences.take_down(fence);
        held_up
    }
}

impl Policy for Model {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        device.account(CallKind::PoolMalloc, bytes)?;
        let threshold = self.settings.release_threshold;
        if self.arena.held() > threshold && self.is_idle(device)? {
            self.arena.release(device, threshold)?;
        }
        let start = match self.reuse(device, bytes, stream)? {
            Some(start) => start,
            None => self.grow(device, bytes, stream)?,
        };
        let addr = DeviceAddr(start);
        self.live.insert(addr, bytes);
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        device.account(CallKind::PoolFree, block.bytes)?;
        let (start, bytes) = (block.addr.0, block.bytes);
        let users = self
            .users
            .of(block)
            .map(|users| [users, &[block.stream]].concat());
        let stream = match &users {
            Some(users) => {
                self.hold_up(device, users)?;
                FREE_STREAM
            }
            None => block.stream,
        };
        let freed = self.streams.of(stream);
        freed.give(device, stream, start, bytes)?;
        if users.is_some() {
            freed.keep_last_mark();
        }
        self.users.forget(block);
        self.live.remove(&block.addr);
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        device.synchronize_device()?;
        self.share(Freed::drain);
        self.arena.release(device, 0)
    }

    fn check(&self) -> Result<(), Violation> {
        let live = self.live.iter().map(|(addr, &bytes)| (addr.0, bytes));
        let mut used = BTreeMap::new();
        for (start, bytes) in live.chain(self.streams.gaps()) {
            let other = used.insert(start, bytes);
            ensure!(other.is_none(), "{start:#x} is in two places");
        }
        self.arena.check(&used)
    }
}
