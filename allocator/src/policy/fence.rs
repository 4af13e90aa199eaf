//! Events that freed memory waits for.

use crate::driver::{Driver, EventId, StreamId};

use super::Refusal;

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
