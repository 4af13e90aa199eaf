//! Tracks when other streams can use the memory that was freed on a stream.

use std::collections::BTreeMap;

use crate::driver::{Driver, EventId, StreamId, uncharged};
use crate::policy::Served;

/// A mark is an event behind the work that a stream had when memory was freed on it. Each free has a number above 0;
/// numbers grow. Memory is complete once no mark up to its number is pending. The driver calls for marks are
/// [`uncharged`]: on a GPU they are part of the calls to the pool.
///
/// Invariant: the marks of a stream are complete in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The marks that were not complete when last queried.
    pending: BTreeMap<u64, EventId>,
    /// Events to use again.
    spare: Vec<EventId>,
}

impl Marks {
    /// Marks the end of a stream's work.
    pub(super) fn set(&mut self, device: &mut dyn Driver, stream: StreamId, number: u64) -> Served {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => uncharged(device, |device| device.create_event())?,
        };
        let recorded = uncharged(device, |device| device.record_event(event, stream));
        if let Err(error) = recorded {
            self.spare.push(event);
            return Err(error.into());
        }
        self.pending.insert(number, event);
        Ok(())
    }

    /// Makes the last mark that of all memory.
    pub(super) fn keep_last(&mut self) {
        if let Some((_, last)) = self.pending.pop_last() {
            self.clear();
            self.pending.insert(0, last);
        }
    }

    /// Drops the mark of memory that is gone.
    pub(super) fn remove(&mut self, number: u64) {
        self.spare.extend(self.pending.remove(&number));
    }

    /// Drops all marks.
    pub(super) fn clear(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.spare.extend(pending.into_values());
    }

    /// Queries which marks are complete.
    pub(super) fn query(&mut self, device: &mut dyn Driver) -> Served {
        while let Some(first) = self.pending.first_entry()
            && uncharged(device, |device| device.event_is_complete(*first.get()))?
        {
            self.spare.push(first.remove());
        }
        Ok(())
    }

    /// Returns the mark that the memory of a free waits for; `None` if it is complete.
    pub(super) fn pending(&self, number: u64) -> Option<EventId> {
        let last = self.pending.range(..=number).next_back();
        last.map(|(_, &event)| event)
    }

    /// Whether the memory of a free is complete.
    pub(super) fn is_complete(&self, number: u64) -> bool {
        self.pending(number).is_none()
    }
}
