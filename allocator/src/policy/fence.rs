//! Events that freed memory waits for, and whose.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::driver::{DeviceAddr, Driver, EventId, StreamId};

use super::{Block, Refusal};

/// The further streams that live blocks are used on.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<DeviceAddr, Vec<StreamId>, FixedState>);

impl Users {
    /// `stream`, too, uses the block.
    pub(super) fn add(&mut self, block: Block, stream: StreamId) {
        let users = self.0.entry(block.addr).or_default();
        if !users.contains(&stream) {
            users.push(stream);
        }
    }

    /// Those of the block, if it has any.
    pub(super) fn of(&self, block: Block) -> Option<&[StreamId]> {
        self.0.get(&block.addr).map(Vec::as_slice)
    }

    /// The block is free.
    pub(super) fn forget(&mut self, block: Block) {
        self.0.remove(&block.addr);
    }
}

/// The ends of the work that streams had when memory was freed: it may be used again once all of it is
/// over. Made and taken down by [`Fences`].
#[derive(Debug)]
pub(super) struct Fence(Vec<EventId>);

/// Makes fences, and uses their events again.
#[derive(Debug, Default)]
pub(super) struct Fences {
    spare: Vec<EventId>,
}

impl Fences {
    /// A fence at the present end of each stream's work.
    pub(super) fn raise(
        &mut self,
        device: &mut dyn Driver,
        streams: &[StreamId],
    ) -> Result<Fence, Refusal> {
        let mut fence = Fence(Vec::with_capacity(streams.len()));
        for &stream in streams {
            if let Err(refusal) = self.mark(device, stream, &mut fence) {
                self.take_down(fence);
                return Err(refusal);
            }
        }
        Ok(fence)
    }

    fn mark(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
        fence: &mut Fence,
    ) -> Result<(), Refusal> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => device.create_event()?,
        };
        fence.0.push(event);
        Ok(device.record_event(event, stream)?)
    }

    /// Gives the events of a fence to the next.
    pub(super) fn take_down(&mut self, fence: Fence) {
        self.spare.extend(fence.0);
    }
}

impl Fence {
    /// Whether all that it stands at the end of is over.
    pub(super) fn is_over(&self, device: &mut dyn Driver) -> Result<bool, Refusal> {
        for &event in &self.0 {
            if !device.event_is_complete(event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets all later work of `stream` wait for all that it stands at the end of; the caller does not
    /// wait.
    pub(super) fn hold_up(&self, device: &mut dyn Driver, stream: StreamId) -> Result<(), Refusal> {
        for &event in &self.0 {
            device.wait_event(stream, event)?;
        }
        Ok(())
    }
}
