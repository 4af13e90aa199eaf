//! Follows the plan of an offline policy.
//!
//! The arena is taken from the device at the first planned request, with exactly the height of the plan.
//! A request is identified by its number. It gets its planned range of the arena if its size and stream
//! are as planned and the range is free. All other requests go to the fallback, which caches by best fit,
//! for each stream separately. If the device refuses the arena, all requests go there until the cache is
//! emptied. So a workload that deviates from the plan still runs.
//!
//! Source: STAlloc's `StaticAllocator` (infinigence/STAlloc, commit 3a9f97f), which ends the program if
//! there is no memory for the arena and does not support streams.

mod arena;
mod segments;

use std::sync::Arc;

use crate::base::check::{Violation, ensure};
use crate::driver::{Driver, StreamId};

use self::arena::Arena;
use self::segments::Segments;
use super::stream_safe::StreamSafe;
use super::{Block, Policy, Served};

/// Offsets and sizes in an arena are multiples of this many bytes.
pub const UNIT: u64 = 512;

/// The plan for one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Expected bytes.
    pub bytes: u64,
    /// Expected stream.
    pub stream: StreamId,
    /// Offset in the arena. Requests without one go to the fallback.
    pub offset: Option<u64>,
}

impl Step {
    /// Bytes it occupies in the arena.
    fn extent(&self) -> u64 {
        self.bytes.next_multiple_of(UNIT)
    }
}

/// The plan for a workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationPlan {
    /// The planned requests, in order.
    pub steps: Vec<Step>,
    /// The step from which the plan repeats. If `None`, nothing is planned after the last step.
    pub repeats_from: Option<usize>,
    /// Requests of fewer bytes are not planned and not counted.
    pub least: u64,
    /// Bytes of the arena.
    pub height: u64,
}

/// A policy that follows a plan. See the [module](self).
#[derive(Debug)]
pub struct Planned {
    plan: Arc<AllocationPlan>,
    /// Index of the next step.
    next: usize,
    arena: Arena,
    fallback: StreamSafe<Segments>,
}

impl Planned {
    /// Follows `plan`.
    pub fn new(plan: Arc<AllocationPlan>) -> Self {
        Self {
            next: 0,
            arena: Arena::new(plan.height),
            plan,
            fallback: StreamSafe::over(Segments::default()),
        }
    }

    /// Returns the step of this request and advances to the next one.
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

    /// Takes the range planned for a step, if it is free.
    fn claim(&mut self, device: &mut dyn Driver, step: Step) -> Served<Option<Block>> {
        let Some(offset) = step.offset else {
            return Ok(None);
        };
        let (bytes, stream) = (step.extent(), step.stream);
        let addr = self.arena.claim(device, offset, bytes, stream)?;
        Ok(addr.map(|addr| Block::new(addr, bytes, stream)))
    }
}

impl Policy for Planned {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let as_planned = |step: &Step| step.bytes == bytes && step.stream == stream;
        if let Some(step) = self.step(bytes).filter(as_planned)
            && let Some(block) = self.claim(device, step)?
        {
            return Ok(block);
        }
        self.fallback.malloc(device, bytes, stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.arena.contains(block.addr) {
            self.arena.release(block.addr);
            return Ok(());
        }
        self.fallback.free(device, block)
    }

    fn record_stream(&mut self, device: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        if self.arena.contains(block.addr) {
            self.arena.record_stream(block.addr, stream);
            return Ok(());
        }
        self.fallback.record_stream(device, block, stream)
    }

    /// Also returns the arena if it is not in use. The next planned request takes it again.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.arena.give_back(device)?;
        self.fallback.empty_cache(device)
    }

    fn check(&self) -> Result<(), Violation> {
        for step in &self.plan.steps {
            let end = step.offset.map_or(0, |offset| offset + step.extent());
            ensure!(end <= self.plan.height, "a planned step exceeds the arena");
        }
        self.arena.check()?;
        self.fallback.check()
    }
}
