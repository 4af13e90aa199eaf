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
//! Where memory lies was found by experiment, on an H100 with driver 580.159.04 (`scripts/gpu/driver_calls.py`):
//!
//! - Blocks are multiples of 512 bytes and lie side by side in one range of addresses, across pages of 32 MiB.
//! - A request takes the start of the smallest gap that is large enough, of equal ones the oldest. What remains of a gap, or
//!   grows because memory beside it is freed, counts as new.
//! - The memory freed on the stream comes first. It is apart from the other gaps until a request does not fit into it,
//!   nor into any other gap; then it becomes part of them, the memory freed last first.
//! - Pages are mapped only where they are needed. If no gap has its pages, the smallest gap gets those that it lacks:
//!   pages that lie in other gaps, at the end of the range and then in the largest, and then new ones.
//!
//! Fifteen of the twenty recorded programs get every address that they got on the H100, and eighteen of 19 with one stream the
//! same peak of reserved memory. Not reproduced: the order in which gaps of one size become part of the others, and
//! which pages are moved if there are several gaps with holes.
//!
//! A block used on other streams is free once they are done. Calls cost nothing but the driver calls for pages.

use std::collections::{BTreeMap, HashMap};

use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, EventId, PoolSettings, StreamId};
use crate::gaps::Gaps;
use crate::policy::fence::{Fence, Fences, Users};
use crate::policy::{Block, Policy, Refusal};

use super::arena::Arena;

/// Memory freed on a stream whose work may not be complete.
#[derive(Debug, Default)]
struct Freed {
    /// Since a request did not fit.
    lately: Gaps,
    before: Gaps,
    /// An event to query the stream's progress.
    end: Option<EventId>,
}

impl Freed {
    /// Takes the best gap. Returns its start.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        [&mut self.lately, &mut self.before]
            .into_iter()
            .find_map(|gaps| {
                let (start, _) = gaps.fitting(bytes).next()?;
                gaps.take(start, bytes);
                Some(start)
            })
    }

    /// Makes the memory freed lately part of the other.
    fn settle(&mut self) {
        for (start, bytes) in self.lately.drain().into_iter().rev() {
            self.before.give(start, bytes, ANYWHERE);
        }
    }

    fn is_empty(&self) -> bool {
        self.lately.is_empty() && self.before.is_empty()
    }

    /// The smallest gap that is large enough: bytes and start.
    fn smallest(&self, bytes: u64) -> Option<(u64, u64)> {
        let gaps = [&self.lately, &self.before].into_iter();
        gaps.filter_map(|gaps| gaps.fitting(bytes).next())
            .map(|(start, bytes)| (bytes, start))
            .min()
    }
}

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
    freed: BTreeMap<StreamId, Freed>,
    fences: Fences,
}

/// Any address.
const ANYWHERE: std::ops::Range<u64> = 0..u64::MAX;

impl Model {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            arena: Arena::default(),
            live: HashMap::new(),
            users: Users::default(),
            fenced: Vec::new(),
            freed: BTreeMap::new(),
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
        let freed = self.freed.entry(block.stream).or_default();
        freed.lately.give(block.addr.0, block.bytes, ANYWHERE);
    }

    /// Records an event at the end of a stream's work. Returns whether the work is complete, and the event.
    fn is_over(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<(bool, EventId), Refusal> {
        let freed = self.freed.entry(stream).or_default();
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
        let freed = self.freed.entry(stream).or_default();
        let before = freed.before.drain().into_iter();
        for (start, bytes) in before.chain(freed.lately.drain().into_iter().rev()) {
            self.arena.give(start, bytes);
        }
    }

    fn share_all(&mut self) {
        let streams: Vec<StreamId> = self.freed.keys().copied().collect();
        for stream in streams {
            self.share(stream);
        }
    }

    /// Shares the memory freed on a stream if its work is complete and the settings allow it. Else what was freed lately
    /// joins the other memory freed on the stream.
    fn share_if_complete(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        if self.settings.reuse_opportunistic && self.is_over(device, stream)?.0 {
            self.share(stream);
        } else {
            self.freed.entry(stream).or_default().settle();
        }
        Ok(())
    }

    /// Takes memory that the stream may use: what was freed on it, or what all may use.
    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<u64> {
        let freed = self.freed.entry(stream).or_default();
        freed.take(bytes).or_else(|| self.arena.take(bytes))
    }

    /// Takes free memory that has its pages.
    fn reuse(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<u64>, Refusal> {
        if let Some(start) = self.take(bytes, stream) {
            return Ok(Some(start));
        }
        if self
            .freed
            .get(&stream)
            .is_some_and(|freed| !freed.is_empty())
        {
            self.share_if_complete(device, stream)?;
        }
        if let Some(start) = self.take(bytes, stream) {
            return Ok(Some(start));
        }
        let others = self
            .freed
            .iter()
            .filter(|&(&other, freed)| other != stream && !freed.is_empty());
        let others: Vec<StreamId> = others.map(|(&other, _)| other).collect();
        for &other in &others {
            self.share_if_complete(device, other)?;
        }
        if let Some(start) = self.arena.take(bytes) {
            return Ok(Some(start));
        }
        if self.settings.reuse_internal_dependencies {
            return self.follow(device, bytes, stream, &others);
        }
        Ok(None)
    }

    /// Takes memory freed on other streams, for whose work the stream then waits.
    fn follow(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
        others: &[StreamId],
    ) -> Result<Option<u64>, Refusal> {
        let fitting = others.iter().filter_map(|other| {
            let (length, start) = self.freed.get(other)?.smallest(bytes)?;
            Some((length, start, *other))
        });
        let Some((length, start, other)) = fitting.min() else {
            return Ok(None);
        };
        let (_, end) = self.is_over(device, other)?;
        device.wait_event(stream, end)?;
        if let Some(freed) = self.freed.get_mut(&other)
            && freed.lately.remove(start).is_none()
        {
            freed.before.remove(start);
        }
        if length > bytes {
            let rest = self.freed.entry(stream).or_default();
            rest.before.give(start + bytes, length - bytes, ANYWHERE);
        }
        Ok(Some(start))
    }

    /// Takes memory whose pages are mapped for it. If the device has none, waits for it and tries again.
    fn grow(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<u64, Refusal> {
        match self.arena.place(device, bytes) {
            Err(Refusal::OutOfMemory) => {
                device.synchronize_device()?;
                self.lift_fences(device)?;
                self.share_all();
                match self.take(bytes, stream) {
                    Some(start) => Ok(start),
                    None => self.arena.place(device, bytes),
                }
            }
            placed => placed,
        }
    }

    /// Whether the work of all streams that have free memory is complete. Their memory is shared then.
    fn is_idle(&mut self, device: &mut dyn Driver) -> Result<bool, Refusal> {
        let streams: Vec<StreamId> = self.freed.keys().copied().collect();
        for stream in streams {
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
        self.lift_fences(device)?;
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
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        let users = self.users.of(block).unwrap_or_default().to_vec();
        if users.is_empty() {
            self.set_free(block);
        } else {
            let fence = self.fences.raise(device, &users)?;
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
        let freed = self.freed.values();
        let freed = freed.flat_map(|freed| freed.lately.iter().chain(freed.before.iter()));
        let mut used = BTreeMap::new();
        for (start, bytes) in live.chain(fenced).chain(freed) {
            let other = used.insert(start, bytes);
            ensure!(other.is_none(), "{start:#x} is in two places");
        }
        self.arena.check(&used)
    }
}
