//! Events that guard freed memory until streams have finished with it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::driver::{DeviceAddr, Driver, EventId, StreamId};

use super::{Block, Served};

/// The other streams that use each live block.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<DeviceAddr, Vec<StreamId>, FixedState>);

impl Users {
    /// Records that `stream` uses the block.
    pub(super) fn add(&mut self, block: Block, stream: StreamId) {
        let users = self.0.entry(block.addr).or_default();
        if !users.contains(&stream) {
            users.push(stream);
        }
    }

    /// Returns the other streams of a block, if it has any.
    pub(super) fn of(&self, block: Block) -> Option<&[StreamId]> {
        self.0.get(&block.addr).map(Vec::as_slice)
    }

    /// Removes and returns the other streams of a freed block.
    #[inline]
    pub(super) fn take(&mut self, block: Block) -> Vec<StreamId> {
        if self.0.is_empty() {
            return Vec::new(); // without hashing the address
        }
        self.take_noted(block)
    }

    #[inline(never)]
    fn take_noted(&mut self, block: Block) -> Vec<StreamId> {
        self.0.remove(&block.addr).unwrap_or_default()
    }

    /// Forgets the streams of a freed block.
    pub(super) fn forget(&mut self, block: Block) {
        self.0.remove(&block.addr);
    }
}

/// Events at the end of the work that streams had when memory was freed. The memory can be reused once
/// all of them are complete. [`Fences`] makes and recycles fences.
#[derive(Debug)]
pub(super) struct Fence(Vec<EventId>);

/// Makes fences and reuses their events.
#[derive(Debug, Default)]
pub(super) struct Fences {
    spare: Vec<EventId>,
}

impl Fences {
    /// Records an event at the current end of each stream's work.
    pub(super) fn raise(&mut self, device: &mut dyn Driver, streams: &[StreamId]) -> Served<Fence> {
        let mut fence = Fence(Vec::with_capacity(streams.len()));
        for &stream in streams {
            if let Err(refusal) = self.mark(device, stream, &mut fence) {
                self.take_down(fence);
                return Err(refusal);
            }
        }
        Ok(fence)
    }

    fn mark(&mut self, device: &mut dyn Driver, stream: StreamId, fence: &mut Fence) -> Served {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => device.create_event()?,
        };
        fence.0.push(event);
        Ok(device.record_event(event, stream)?)
    }

    /// Keeps the events of a fence for reuse.
    pub(super) fn take_down(&mut self, fence: Fence) {
        self.spare.extend(fence.0);
    }
}

impl Fence {
    /// Whether all its events are complete.
    pub(super) fn is_over(&self, device: &mut dyn Driver) -> Served<bool> {
        for &event in &self.0 {
            if !device.event_is_complete(event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes later work of `stream` wait for its events. The caller does not wait.
    pub(super) fn hold_up(&self, device: &mut dyn Driver, stream: StreamId) -> Served {
        for &event in &self.0 {
            device.wait_event(stream, event)?;
        }
        Ok(())
    }
}
