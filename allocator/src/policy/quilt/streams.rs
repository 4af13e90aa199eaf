//! The order of work on different streams.
//!
//! A stream can reuse memory that was freed on it at once. Another stream can reuse it when the work submitted before the
//! free is complete, or must wait for that work on the device. The host never waits.

use std::collections::{BTreeMap, VecDeque};

use crate::driver::{Driver, EventId, Status, StreamId};

/// Events kept for each stream. A stream that needs an older event waits for the oldest of these instead.
const EVENTS: usize = 16;
/// A point in the work of a stream: where its event of this number was or will be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    stream: StreamId,
    number: u64,
}

impl Mark {
    /// Whether it is a point in the work of this stream.
    pub(super) fn is_of(self, stream: StreamId) -> bool {
        self.stream == stream
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// Number of the last event recorded, from 1 on.
    recorded: u64,
    /// Number of the last event known to be complete.
    complete: u64,
    /// The last events with their numbers, the oldest first.
    events: VecDeque<(u64, EventId)>,
    /// The last event of each other stream that this stream waits for.
    after: BTreeMap<StreamId, u64>,
    /// Bytes freed since the last event.
    freed: u64,
}

impl Stream {
    fn first_from(&self, number: u64) -> Option<(u64, EventId)> {
        let mut events = self.events.iter();
        events.find(|&&(recorded, _)| recorded >= number).copied()
    }
}

/// All streams that requested or used memory.
#[derive(Debug, Default)]
pub(super) struct UsedStreams(BTreeMap<StreamId, Stream>);

impl UsedStreams {
    /// Adds a stream.
    pub(super) fn add(&mut self, stream: StreamId) {
        self.0.entry(stream).or_default();
    }

    pub(super) fn contains(&self, stream: StreamId) -> bool {
        self.0.contains_key(&stream)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = StreamId> {
        self.0.keys().copied()
    }

    /// The present end of the work of a stream.
    pub(super) fn end_of(&self, stream: StreamId) -> Mark {
        let number = self.0.get(&stream).map_or(0, |stream| stream.recorded) + 1;
        Mark { stream, number }
    }

    /// The present ends of the work of a stream and of other users.
    pub(super) fn ends_of(&self, stream: StreamId, users: &[StreamId]) -> Vec<Mark> {
        let all = [stream].into_iter().chain(users.iter().copied());
        all.map(|stream| self.end_of(stream)).collect()
    }

    /// Whether later work of a stream is already ordered after a mark.
    pub(super) fn comes_after(&self, stream: StreamId, mark: Mark) -> bool {
        let waits = || {
            let after = self.0.get(&stream)?.after.get(&mark.stream)?;
            Some(*after >= mark.number)
        };
        stream == mark.stream || self.is_known_over(mark) || waits().unwrap_or(false)
    }

    /// Whether the work before a mark is known to be complete.
    pub(super) fn is_known_over(&self, mark: Mark) -> bool {
        let stream = self.0.get(&mark.stream);
        stream.is_some_and(|stream| stream.complete >= mark.number)
    }

    /// Whether there is more than one stream.
    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Counts bytes freed on a stream. If there are other streams, records an event after every `bytes_per_event`, so
    /// that a stream that takes some of this memory need not wait for everything that is submitted later.
    pub(super) fn count_freed(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
        bytes: u64,
        bytes_per_event: u64,
    ) -> Status {
        let shares = self.are_several();
        let Some(of) = self.0.get_mut(&stream) else {
            return Ok(());
        };
        of.freed += bytes;
        if shares && of.freed >= bytes_per_event {
            self.record(device, stream)?;
        }
        Ok(())
    }

    /// Records an event at the end of the work of a stream.
    fn record(&mut self, device: &mut dyn Driver, stream: StreamId) -> Status<(u64, EventId)> {
        let of = self.0.entry(stream).or_default();
        let oldest = (of.events.len() >= EVENTS).then(|| of.events.pop_front());
        let event = match oldest.flatten() {
            Some((_, event)) => event,
            None => device.create_event()?,
        };
        if let Err(error) = device.record_event(event, stream) {
            // Nothing waits for it: number 0 is before all marks.
            of.events.push_front((0, event));
            return Err(error);
        }
        of.recorded += 1;
        of.freed = 0;
        of.events.push_back((of.recorded, event));
        Ok((of.recorded, event))
    }

    /// Whether the work before a mark is complete. Queries the device.
    pub(super) fn is_over(&mut self, device: &mut dyn Driver, mark: Mark) -> Status<bool> {
        if self.is_known_over(mark) {
            return Ok(true);
        }
        let Some(of) = self.0.get_mut(&mark.stream) else {
            return Ok(true);
        };
        let Some((number, event)) = of.first_from(mark.number) else {
            return Ok(false);
        };
        let over = device.event_is_complete(event)?;
        if over {
            of.complete = number;
        }
        Ok(over)
    }

    /// Orders later work of `stream` after a mark. The host does not wait.
    pub(super) fn wait(&mut self, device: &mut dyn Driver, stream: StreamId, mark: Mark) -> Status {
        if self.comes_after(stream, mark) || self.is_over(device, mark)? {
            return Ok(());
        }
        let recorded = self.0.get(&mark.stream);
        let (number, event) = match recorded.and_then(|of| of.first_from(mark.number)) {
            Some(event) => event,
            None => self.record(device, mark.stream)?,
        };
        device.wait_event(stream, event)?;
        let after = &mut self.0.entry(stream).or_default().after;
        after.insert(mark.stream, number);
        Ok(())
    }

    /// Records an event at a mark, unless there is one.
    pub(super) fn record_by(&mut self, device: &mut dyn Driver, mark: Mark) -> Status {
        let of = self.0.get(&mark.stream);
        if of.is_some_and(|of| of.recorded < mark.number) {
            self.record(device, mark.stream)?;
        }
        Ok(())
    }

    /// Records that all work of all streams is complete.
    pub(super) fn all_over(&mut self) {
        for stream in self.0.values_mut() {
            // This includes the marks at the present end of the work.
            stream.recorded += 1;
            stream.complete = stream.recorded;
        }
    }
}
