//! A model of the driver's pool, for devices without one.
//!
//! # Rules and sources
//!
//! The CUDA C++ Programming Guide (12.9, "Stream Ordered Memory Allocator") says which memory a stream may reuse:
//!
//! - memory freed on the same stream;
//! - memory of another stream whose work before the free is complete (`cudaMemPoolReuseAllowOpportunistic`), or for whose
//!   work it then waits (`cudaMemPoolReuseAllowInternalDependencies`). Both are on by default. The third rule follows
//!   the program's own waits between streams, which a workload does not record;
//! - above the release threshold, free memory is returned when the device is idle.
//!
//! Where memory lies was found by experiment, on an H100 with driver 580.159.04 (`scripts/gpu/driver_calls.py`). A request
//! takes the first of
//!
//! 1. the memory freed on its stream;
//! 2. free memory that all streams may use, in a gap whose pages are all there;
//! 3. the memory freed on another stream, if its work is complete: the stream that was used first;
//! 4. the smallest gap, once all memory freed on streams whose work is complete has become part of the memory that all may
//!    use: the stream that was used first, and of each the memory freed last.
//!
//! Everywhere it takes the start of the smallest gap that is large enough, of equal ones the oldest. What remains of a gap, or
//! grows because memory beside it is freed, counts as new. Blocks are multiples of 512 bytes and lie side by side in
//! one range of addresses, across pages of 32 MiB. In the last case pages may be missing: those at the highest addresses
//! in free memory are mapped again, then new ones.
//!
//! So every address and the reserved memory of the twenty recorded programs is the same as on the H100, and of random
//! sequences on one and on three streams.
//!
//! A block used on other streams is freed on a stream of its own once they are done, as by the [pool](super::pool). The driver also shares the memory freed on all streams when the
//! program waits for the device, which a policy does not see. The device accounts for the calls that the pool serves, and for those
//! that move pages.

use std::collections::{BTreeMap, HashMap};

use crate::check::{Violation, ensure};
use crate::driver::calls::CallKind;
use crate::driver::{DeviceAddr, Driver, EventId, PoolSettings, StreamId};
use crate::policy::fence::{Fence, Fences, Users};
use crate::policy::{Block, Policy, Refusal};

use super::arena::Arena;
use super::freed::Freed;

/// The stream on which blocks are freed that several streams use.
const FREE_STREAM: StreamId = StreamId::nth(u32::MAX);

/// A freed block that other streams may use until the fence is over.
#[derive(Debug)]
struct Fenced {
    block: Block,
    fence: Fence,
}

/// See the [module](self).
///
/// Invariant: live and fenced blocks, the memory freed on streams, and the gaps of the arena cover its range without overlap.
#[derive(Debug)]
pub(super) struct Model {
    settings: PoolSettings,
    arena: Arena,
    live: HashMap<DeviceAddr, u64>,
    users: Users,
    fenced: Vec<Fenced>,
    freed: HashMap<StreamId, Freed>,
    /// The streams, those used first first.
    streams: Vec<StreamId>,
    fences: Fences,
}

impl Model {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            arena: Arena::default(),
            live: HashMap::new(),
            users: Users::default(),
            fenced: Vec::new(),
            freed: HashMap::new(),
            streams: Vec::new(),
            fences: Fences::default(),
        }
    }

    /// Frees the fenced blocks that no other stream uses any more.
    fn lift_fences(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        let mut next = 0;
        while let Some(Fenced { fence, .. }) = self.fenced.get(next) {
            if fence.is_over(device)? {
                let Fenced { block, fence } = self.fenced.remove(next);
                self.fences.take_down(fence);
                self.set_free(block);
            } else {
                next += 1;
            }
        }
        Ok(())
    }

    fn set_free(&mut self, block: Block) {
        let freed = self.freed_on(block.stream);
        freed.give(block.addr.0, block.bytes);
    }

    fn freed_on(&mut self, stream: StreamId) -> &mut Freed {
        let streams = &mut self.streams;
        self.freed.entry(stream).or_insert_with(|| {
            streams.push(stream);
            Freed::default()
        })
    }

    /// Records an event at the end of a stream's work. Returns whether the work is complete, and the event.
    fn is_over(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<(bool, EventId), Refusal> {
        let freed = self.freed_on(stream);
        let event = match freed.end {
            Some(event) => event,
            None => device.create_event()?,
        };
        freed.end = Some(event);
        device.record_event(event, stream)?;
        Ok((device.event_is_complete(event)?, event))
    }

    /// Makes the memory freed on a stream available to all. Its work is complete.
    fn share(&mut self, stream: StreamId) {
        for (start, bytes) in self.freed_on(stream).drain() {
            self.arena.give(start, bytes);
        }
    }

    fn share_all(&mut self) {
        for stream in self.streams.clone() {
            self.share(stream);
        }
    }

    /// Takes free memory, except what pages are missing for.
    fn reuse(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<u64>, Refusal> {
        let own = self.freed_on(stream).take(bytes);
        if let Some(start) = own.or_else(|| self.arena.take(bytes)) {
            return Ok(Some(start));
        }
        let (complete, pending) = self.streams_with_memory(device)?;
        let other = complete
            .iter()
            .filter(|&&other| other != stream)
            .find_map(|&other| self.freed_on(other).take(bytes));
        if other.is_some() {
            return Ok(other);
        }
        for other in complete {
            self.share(other);
        }
        if self.settings.reuse_internal_dependencies {
            return self.follow(device, bytes, stream, &pending);
        }
        Ok(None)
    }

    /// The streams with freed memory: those whose work is complete, if the settings allow to reuse it for that, and the
    /// others.
    fn streams_with_memory(
        &mut self,
        device: &mut dyn Driver,
    ) -> Result<(Vec<StreamId>, Vec<StreamId>), Refusal> {
        let (mut complete, mut pending) = (Vec::new(), Vec::new());
        for stream in self.streams.clone() {
            if self.freed_on(stream).is_empty() {
                continue;
            }
            let is_over = self.settings.reuse_opportunistic && self.is_over(device, stream)?.0;
            if is_over {
                complete.push(stream);
            } else {
                pending.push(stream);
            }
        }
        Ok((complete, pending))
    }

    /// Takes memory freed on other streams, for whose work the stream then waits.
    fn follow(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
        others: &[StreamId],
    ) -> Result<Option<u64>, Refusal> {
        for &other in others {
            if other != stream && self.freed_on(other).best_fit(bytes).is_some() {
                let (_, end) = self.is_over(device, other)?;
                device.wait_event(stream, end)?;
                return Ok(self.freed_on(other).take(bytes));
            }
        }
        Ok(None)
    }

    /// Takes memory whose pages are mapped for it. If the device has none, waits for it and tries again.
    fn grow(&mut self, device: &mut dyn Driver, bytes: u64) -> Result<u64, Refusal> {
        match self.arena.place(device, bytes) {
            Err(Refusal::OutOfMemory) => {
                device.synchronize_device()?;
                self.lift_fences(device)?;
                self.share_all();
                self.arena.place(device, bytes)
            }
            placed => placed,
        }
    }

    /// Whether the work of all streams that have free memory is complete. Their memory is shared then.
    fn is_idle(&mut self, device: &mut dyn Driver) -> Result<bool, Refusal> {
        for stream in self.streams.clone() {
            if !self.is_over(device, stream)?.0 {
                return Ok(false);
            }
            self.share(stream);
        }
        Ok(true)
    }
}

impl Policy for Model {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        device.account(CallKind::PoolMalloc, bytes)?;
        self.lift_fences(device)?;
        let threshold = self.settings.release_threshold;
        if self.arena.held() > threshold && self.is_idle(device)? {
            self.arena.release(device, threshold)?;
        }
        let start = match self.reuse(device, bytes, stream)? {
            Some(start) => start,
            None => self.grow(device, bytes)?,
        };
        let addr = DeviceAddr(start);
        self.live.insert(addr, bytes);
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        device.account(CallKind::PoolFree, block.bytes)?;
        let mut users = self.users.of(block).unwrap_or_default().to_vec();
        if users.is_empty() {
            self.set_free(block);
        } else {
            users.push(block.stream);
            let fence = self.fences.raise(device, &users)?;
            let block = Block {
                stream: FREE_STREAM,
                ..block
            };
            self.fenced.push(Fenced { block, fence });
        }
        self.users.forget(block);
        self.live.remove(&block.addr);
        Ok(())
    }

    fn record_stream(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        device.synchronize_device()?;
        self.lift_fences(device)?;
        self.share_all();
        self.arena.release(device, 0)
    }

    fn check(&self) -> Result<(), Violation> {
        let live = self.live.iter().map(|(addr, &bytes)| (addr.0, bytes));
        let fenced = self
            .fenced
            .iter()
            .map(|it| (it.block.addr.0, it.block.bytes));
        let freed = self.freed.values().flat_map(Freed::iter);
        let mut used = BTreeMap::new();
        for (start, bytes) in live.chain(fenced).chain(freed) {
            let other = used.insert(start, bytes);
            ensure!(other.is_none(), "{start:#x} is in two places");
        }
        self.arena.check(&used)
    }
}
