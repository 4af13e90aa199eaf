//! The order of work on different streams.
//!
//! A stream can reuse memory that was freed on it at once. Another stream can reuse it when the work submitted before the
//! free is complete, or must wait for that work on the device. The host never waits.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::driver::{Driver, EventId, Status, StreamId};

/// Events kept for each stream. A stream that needs an older event waits for the oldest of these instead.
const EVENTS: usize = 16;

/// The number of a stream among those that requested or used memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamNumber(pub(super) u16);

impl StreamNumber {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A point in the work of a stream: where its event of this number was or will be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    stream: StreamNumber,
    number: u64,
}

impl Mark {
    /// Whether it is a point in the work of this stream.
    pub(super) fn is_of(self, stream: StreamNumber) -> bool {
        self.stream == stream
    }

    pub(super) fn pack(self) -> PackedMark {
        PackedMark::new(self.stream, self.number)
    }
}

/// A mark in 64 bits: the number of the stream in the highest 16. Those of a stream are in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PackedMark(u64);

impl PackedMark {
    /// Events are numbered with fewer bits than this.
    const NUMBER_BITS: u32 = 48;

    pub(super) fn new(stream: StreamNumber, number: u64) -> Self {
        Self(u64::from(stream.0) << Self::NUMBER_BITS | number)
    }

    pub(super) fn stream(self) -> StreamNumber {
        StreamNumber((self.0 >> Self::NUMBER_BITS) as u16)
    }

    pub(super) fn unpack(self) -> Mark {
        Mark {
            stream: self.stream(),
            number: self.0 & ((1 << Self::NUMBER_BITS) - 1),
        }
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
    /// The last event of each other stream that this stream waits for, by the stream's number; 0 is none.
    after: Vec<u64>,
    /// Bytes freed since the last event.
    freed: u64,
}

impl Stream {
    fn first_from(&self, number: u64) -> Option<(u64, EventId)> {
        let mut events = self.events.iter();
        events.find(|&&(recorded, _)| recorded >= number).copied()
    }

    /// Whether its work is ordered after a mark of another stream, because it waits for that.
    fn waits_for(&self, mark: Mark) -> bool {
        let after = self.after.get(mark.stream.index());
        after.is_some_and(|&after| after >= mark.number)
    }
}

/// All streams that requested or used memory. None is ever forgotten.
#[derive(Debug, Default)]
pub(super) struct UsedStreams {
    ids: Vec<StreamId>,
    streams: Vec<Stream>,
    /// The stream that was asked for last, by its number: mostly the next one, too.
    last: Cell<u16>,
}

impl UsedStreams {
    /// The number of a stream, if it is known.
    pub(super) fn number_of(&self, stream: StreamId) -> Option<StreamNumber> {
        let last = self.last.get();
        if self.ids.get(usize::from(last)) == Some(&stream) {
            return Some(StreamNumber(last));
        }
        let index = self.ids.iter().position(|&id| id == stream)?;
        let number = u16::try_from(index).ok()?;
        self.last.set(number);
        Some(StreamNumber(number))
    }

    /// Adds a stream that is not known, and returns its number; `None` if there are 65,536 already.
    pub(super) fn add(&mut self, stream: StreamId) -> Option<StreamNumber> {
        let number = u16::try_from(self.ids.len()).ok().map(StreamNumber)?;
        self.ids.push(stream);
        self.streams.push(Stream::default());
        Some(number)
    }

    /// The present ends of the work of all streams.
    pub(super) fn ends(&self) -> impl Iterator<Item = Mark> {
        let numbers = (0..).take(self.streams.len()).map(StreamNumber);
        numbers.map(|stream| self.end_of(stream))
    }

    /// The present end of the work of a stream.
    pub(super) fn end_of(&self, stream: StreamNumber) -> Mark {
        let number = self.get(stream).map_or(0, |stream| stream.recorded) + 1;
        Mark { stream, number }
    }

    /// Whether later work of a stream is already ordered after a mark.
    pub(super) fn comes_after(&self, stream: StreamNumber, mark: Mark) -> bool {
        let waits = || {
            self.get(stream)
                .is_some_and(|stream| stream.waits_for(mark))
        };
        stream == mark.stream || self.is_known_over(mark) || waits()
    }

    /// Whether the work before a mark is known to be complete.
    pub(super) fn is_known_over(&self, mark: Mark) -> bool {
        let stream = self.get(mark.stream);
        stream.is_some_and(|stream| stream.complete >= mark.number)
    }

    /// Whether there is more than one stream.
    pub(super) fn are_several(&self) -> bool {
        self.streams.len() > 1
    }

    /// Counts bytes freed on a stream. If there are other streams, records an event after every `bytes_per_event`, so
    /// that a stream that takes some of this memory need not wait for everything that is submitted later. Returns whether
    /// it did.
    pub(super) fn count_freed(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamNumber,
        bytes: u64,
        bytes_per_event: u64,
    ) -> Status<bool> {
        let shares = self.are_several();
        let Some(of) = self.streams.get_mut(stream.index()) else {
            return Ok(false);
        };
        of.freed += bytes;
        let is_due = shares && of.freed >= bytes_per_event;
        if is_due {
            self.record(device, stream)?;
        }
        Ok(is_due)
    }

    /// The mark of the oldest kept event of each stream, by its number. A stream that waits for an earlier mark really waits
    /// for this one.
    pub(super) fn oldest_kept(&self) -> impl Iterator<Item = Mark> {
        let marks = (0..).map(StreamNumber).zip(&self.streams);
        marks.map(|(stream, of)| {
            let number = of.events.front().map_or(0, |&(number, _)| number);
            Mark { stream, number }
        })
    }

    fn get(&self, stream: StreamNumber) -> Option<&Stream> {
        self.streams.get(stream.index())
    }

    /// Records an event at the end of the work of a stream. Returns nothing if the stream is not known.
    fn record(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamNumber,
    ) -> Status<Option<(u64, EventId)>> {
        let index = stream.index();
        let (Some(&id), Some(of)) = (self.ids.get(index), self.streams.get_mut(index)) else {
            return Ok(None);
        };
        let oldest = (of.events.len() >= EVENTS).then(|| of.events.pop_front());
        let event = match oldest.flatten() {
            Some((_, event)) => event,
            None => device.create_event()?,
        };
        if let Err(error) = device.record_event(event, id) {
            // Nothing waits for it: number 0 is before all marks.
            of.events.push_front((0, event));
            return Err(error);
        }
        of.recorded += 1;
        of.freed = 0;
        of.events.push_back((of.recorded, event));
        Ok(Some((of.recorded, event)))
    }

    /// Whether the work before a mark is complete. Queries the device.
    pub(super) fn is_over(&mut self, device: &mut dyn Driver, mark: Mark) -> Status<bool> {
        if self.is_known_over(mark) {
            return Ok(true);
        }
        let Some(of) = self.streams.get_mut(mark.stream.index()) else {
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

    /// Whether the work before all marks is complete, as far as events were recorded after it. Queries the device.
    pub(super) fn all_known_over(
        &mut self,
        device: &mut dyn Driver,
        marks: &[Mark],
    ) -> Status<bool> {
        for &mark in marks {
            if !self.is_over(device, mark)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Records an event on each stream, by which one later learns that its present work is over. A stream that refuses has
    /// none.
    pub(super) fn record_all(&mut self, device: &mut dyn Driver) {
        for stream in (0..).take(self.streams.len()).map(StreamNumber) {
            let _refused = self.record(device, stream);
        }
    }

    /// Orders later work of `stream` after a mark. The host does not wait.
    pub(super) fn wait(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamNumber,
        mark: Mark,
    ) -> Status {
        if self.comes_after(stream, mark) || self.is_over(device, mark)? {
            return Ok(());
        }
        let recorded = self.get(mark.stream);
        let recorded = match recorded.and_then(|of| of.first_from(mark.number)) {
            Some(event) => Some(event),
            None => self.record(device, mark.stream)?,
        };
        let index = stream.index();
        if let (Some((number, event)), Some(&id)) = (recorded, self.ids.get(index)) {
            device.wait_event(id, event)?;
            let known = self.streams.len();
            let after = &mut self.streams[index].after;
            after.resize(known, 0);
            after[mark.stream.index()] = number;
        }
        Ok(())
    }

    /// Records an event at a mark, unless there is one.
    pub(super) fn record_by(&mut self, device: &mut dyn Driver, mark: Mark) -> Status {
        let of = self.get(mark.stream);
        if of.is_some_and(|of| of.recorded < mark.number) {
            self.record(device, mark.stream)?;
        }
        Ok(())
    }

    /// Records that all work of all streams is complete.
    pub(super) fn all_over(&mut self) {
        for stream in &mut self.streams {
            // This includes the marks at the present end of the work.
            stream.recorded += 1;
            stream.complete = stream.recorded;
        }
    }
}
