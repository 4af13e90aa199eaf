//! Runs a plan: what a request gets was decided before the program began.
//!
//! The arena is taken from the device at the first request that is in the plan, exactly as large as the
//! plan is high. A request is known by its number alone. It gets its range of the arena if it is the
//! request that was planned, of the same size on the same stream, and if the range is free: a program
//! that does not do as foreseen may still use it. All others go to the fallback, which caches by best
//! fit, each stream apart; so do all if the device refuses the arena, until the cache is emptied.
//!
//! Source: STAlloc's `StaticAllocator` (infinigence/STAlloc, commit 3a9f97f), which ends the program if
//! there is no memory for the arena and knows nothing of streams.

mod arena;
mod segments;

use std::sync::Arc;

use crate::check::{Violation, ensure};
use crate::driver::{Driver, StreamId};

use self::arena::Arena;
use self::segments::Segments;
use super::stream_safe::StreamSafe;
use super::{Block, Policy, Refusal};

/// Offsets and sizes in an arena are multiples of so many bytes.
pub const UNIT: u64 = 512;

/// What is planned for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Bytes it is expected to ask for.
    pub bytes: u64,
    /// The stream it is expected on.
    pub stream: StreamId,
    /// Where it lies in the arena. What has no place goes to the fallback.
    pub offset: Option<u64>,
}

impl Step {
    /// Bytes it occupies.
    fn extent(&self) -> u64 {
        self.bytes.next_multiple_of(UNIT)
    }
}

/// What every request gets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationPlan {
    /// The requests, in the order in which they are made.
    pub steps: Vec<Step>,
    /// The steps from this one on are done over and over. Otherwise nothing is planned after the last.
    pub repeats_from: Option<usize>,
    /// Requests of fewer bytes are not in the plan, and not counted.
    pub least: u64,
    /// Bytes of the arena.
    pub height: u64,
}

/// A plan that is being carried out. See the [module](self).
#[derive(Debug)]
pub struct Planned {
    plan: Arc<AllocationPlan>,
    /// The next step.
    next: usize,
    arena: Arena,
    fallback: StreamSafe<Segments>,
}

impl Planned {
    /// Carries out `plan`.
    pub fn new(plan: Arc<AllocationPlan>) -> Self {
        Self {
            next: 0,
            arena: Arena::new(plan.height),
            plan,
            fallback: StreamSafe::over(Segments::default()),
        }
    }

    /// The step of this request, whose turn it then was, whether it is served or not.
    fn step(&mut self, bytes: u64) -> Option<Step> {
        if bytes < self.plan.least {
            return None;
        }
        if self.next >= self.plan.steps.len() {
            self.next = self.plan.repeats_from?;
        }
        let step = self.plan.steps.get(self.next).copied();
        self.next += 1;
        step
    }

    /// The memory planned for a step, if it can be had.
    fn claim(&mut self, device: &mut dyn Driver, step: Step) -> Result<Option<Block>, Refusal> {
        let Some(offset) = step.offset else {
            return Ok(None);
        };
        let (bytes, stream) = (step.extent(), step.stream);
        let addr = self.arena.claim(device, offset, bytes, stream)?;
        Ok(addr.map(|addr| Block {
            addr,
            bytes,
            stream,
        }))
    }
}

impl Policy for Planned {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let as_planned = |step: &Step| step.bytes == bytes && step.stream == stream;
        if let Some(step) = self.step(bytes).filter(as_planned)
            && let Some(block) = self.claim(device, step)?
        {
            return Ok(block);
        }
        self.fallback.malloc(device, bytes, stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        if self.arena.contains(block.addr) {
            self.arena.release(block.addr);
            return Ok(());
        }
        self.fallback.free(device, block)
    }

    fn record_stream(
        &mut self,
        device: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        if self.arena.contains(block.addr) {
            self.arena.record_stream(block.addr, stream);
            return Ok(());
        }
        self.fallback.record_stream(device, block, stream)
    }

    /// The arena goes, too, if nothing in it is in use. It is taken again for the next planned request.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        self.arena.give_back(device)?;
        self.fallback.empty_cache(device)
    }

    fn check(&self) -> Result<(), Violation> {
        for step in &self.plan.steps {
            let end = step.offset.map_or(0, |offset| offset + step.extent());
            ensure!(end <= self.plan.height, "a step outside of the arena");
        }
        self.arena.check()?;
        self.fallback.check()
    }
}
