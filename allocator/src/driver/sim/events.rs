//! Streams and events of the simulated device.
//!
//! A stream has two counters: the events recorded on it, and how many of them are complete. Events complete
//! in the order of recording. Waits between streams are kept, so that the order of work on two streams can
//! be queried.
//!
//! While kernels run on a stream, its events complete by the clock, which is told when a kernel is submitted.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::driver::work::{Kernel, Timeline};
use crate::driver::{DriverError, EventId, Status, StreamId};

#[derive(Debug, Default)]
struct Stream {
    recorded: u64,
    /// At most `recorded`.
    completed: u64,
    /// How often all its work was waited for.
    drained: u64,
    /// How many events of each other stream must be complete before later work on this one begins, by the stream's place
    /// in [`SimStreams::states`]. None if the place is missing.
    after: Vec<u64>,
    /// Waits, in order, that the completed events do not imply yet.
    waits: Vec<Wait>,
    /// Pending events that complete by the clock: when, in nanoseconds, and the count of events recorded up to each.
    due: VecDeque<(u64, u64)>,
}

/// A wait of a stream for another one.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Events recorded before it.
    recorded: u64,
    /// The place of the other stream in [`SimStreams::states`], and how many of its events must be complete.
    other: usize,
    ticket: u64,
}

/// The last recording of an event. It is complete once `ticket` events of the stream are.
#[derive(Clone, Debug, Default)]
struct Recording {
    /// The place of its stream in [`SimStreams::states`].
    stream: usize,
    ticket: u64,
    /// When the kernels before it are over, in nanoseconds on the clock.
    due_ns: u64,
    /// The stream's `after` at that time.
    after: Vec<u64>,
}

/// All streams of a device and the events recorded on them.
#[derive(Debug, Default)]
pub struct SimStreams {
    hold: bool,
    /// The place of each stream in `states`.
    places: HashMap<StreamId, usize, FixedState>,
    states: Vec<Stream>,
    events: Vec<Option<Recording>>,
    /// How often all streams were waited for.
    all_drained: u64,
    timeline: Timeline,
    /// Nanoseconds on the clock when it was last told.
    now_ns: u64,
}

impl SimStreams {
    pub(super) fn new(hold: bool) -> Self {
        Self {
            hold,
            ..Self::default()
        }
    }

    /// Sets whether newly recorded events stay pending until they are completed or waited for.
    pub fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Completes the oldest `count` pending events of a stream, or all if there are fewer, and all that
    /// they wait for.
    pub fn complete(&mut self, stream: StreamId, count: u64) {
        if let Some(&place) = self.places.get(&stream) {
            let completed = self.states[place].completed;
            self.complete_up_to(place, completed.saturating_add(count));
        }
    }

    fn complete_up_to(&mut self, place: usize, ticket: u64) {
        let mut pending = vec![(place, ticket)];
        while let Some((place, ticket)) = pending.pop() {
            let stream = &mut self.states[place];
            stream.completed = stream.completed.max(ticket.min(stream.recorded));
            let completed = stream.completed;
            let implied = stream
                .waits
                .partition_point(|wait| wait.recorded < completed);
            let implied = stream.waits.drain(..implied);
            pending.extend(implied.map(|wait| (wait.other, wait.ticket)));
        }
    }

    /// Adds a kernel, and completes the events before which all kernels are over by now.
    pub(super) fn submit(&mut self, kernel: Kernel) {
        self.now_ns = kernel.submitted_ns.max(self.now_ns);
        for place in 0..self.states.len() {
            let due = &mut self.states[place].due;
            let over = due.partition_point(|&(due_ns, _)| due_ns <= self.now_ns);
            let last = due.drain(..over).next_back();
            if let Some((_, ticket)) = last {
                self.complete_up_to(place, ticket);
            }
        }
        self.timeline.submit(kernel);
    }

    /// Completes all work of a stream.
    pub fn drain(&mut self, stream: StreamId) {
        let place = self.place(stream);
        self.complete_up_to(place, u64::MAX);
        self.states[place].drained += 1;
        self.now_ns = self.now_ns.max(self.timeline.until(stream));
    }

    /// Completes all work of all streams.
    pub fn complete_all(&mut self) {
        for stream in &mut self.states {
            stream.completed = stream.recorded;
            stream.waits.clear();
        }
        self.all_drained += 1;
        self.now_ns = self.now_ns.max(self.timeline.over());
    }

    /// Returns how often all work of a stream was waited for.
    #[must_use]
    pub fn times_drained(&self, stream: StreamId) -> u64 {
        let alone = self.state(stream);
        self.all_drained + alone.map_or(0, |stream| stream.drained)
    }

    /// Returns the number of events recorded on a stream and how many of them are complete.
    #[must_use]
    pub fn progress(&self, stream: StreamId) -> (u64, u64) {
        self.state(stream)
            .map_or((0, 0), |stream| (stream.recorded, stream.completed))
    }

    /// Returns whether all recorded events are complete.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        let mut streams = self.states.iter();
        streams.all(|stream| stream.completed == stream.recorded)
    }

    pub(super) fn create(&mut self) -> Status<EventId> {
        let id = u32::try_from(self.events.len()).map_err(|_| DriverError::OutOfMemory)?;
        self.events.push(None);
        Ok(EventId(id))
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) -> Status {
        self.recording(event)?;
        let due_ns = self.timeline.until(stream);
        let stream = self.place(stream);
        let counters = &mut self.states[stream];
        counters.recorded += 1;
        if due_ns > self.now_ns && !self.hold {
            counters.due.push_back((due_ns, counters.recorded));
        } else if !self.hold {
            counters.completed = counters.recorded;
            counters.waits.clear();
        }
        let recording = self.events[event.0 as usize].get_or_insert_default();
        recording.stream = stream;
        recording.ticket = counters.recorded;
        recording.due_ns = due_ns;
        recording.after.clone_from(&counters.after);
        Ok(())
    }

    /// Makes later work of `stream` wait for `event`.
    pub(super) fn wait(&mut self, stream: StreamId, event: EventId) -> Status {
        if self.recording(event)?.is_none() {
            return Ok(());
        }
        let place = self.place(stream);
        let Some(recording) = &self.events[event.0 as usize] else {
            return Ok(());
        };
        self.timeline.delay(stream, recording.due_ns);
        let (other, ticket) = (recording.stream, recording.ticket);
        let own = &mut self.states[place];
        if self.hold {
            own.waits.push(Wait {
                recorded: own.recorded,
                other,
                ticket,
            });
        }
        let known = own.after.len().max(recording.after.len()).max(other + 1);
        own.after.resize(known, 0);
        for (known, &ticket) in own.after.iter_mut().zip(&recording.after) {
            *known = ticket.max(*known);
        }
        own.after[other] = ticket.max(own.after[other]);
        Ok(())
    }

    /// Returns whether later work of `stream` is ordered after the `ticket`-th event of `other`: the event
    /// is complete, or `stream` waits for it.
    #[must_use]
    pub fn comes_after(&self, stream: StreamId, other: StreamId, ticket: u64) -> bool {
        let place = self.places.get(&other);
        let own = self.state(stream).zip(place);
        let waited = own.and_then(|(own, &place)| own.after.get(place));
        self.progress(other).1 >= ticket || waited.is_some_and(|&known| known >= ticket)
    }

    pub(super) fn is_complete(&self, event: EventId) -> Status<bool> {
        let Some(recording) = self.recording(event)? else {
            return Ok(true);
        };
        Ok(self.states[recording.stream].completed >= recording.ticket)
    }

    /// Completes an event and all earlier ones of its stream.
    pub(super) fn complete_through(&mut self, event: EventId) -> Status {
        let Some(recording) = self.recording(event)? else {
            return Ok(());
        };
        let (stream, ticket) = (recording.stream, recording.ticket);
        self.complete_up_to(stream, ticket);
        Ok(())
    }

    fn state(&self, stream: StreamId) -> Option<&Stream> {
        self.places.get(&stream).map(|&place| &self.states[place])
    }

    /// The place of a stream, which gets one now if it has none.
    fn place(&mut self, stream: StreamId) -> usize {
        *self.places.entry(stream).or_insert_with(|| {
            self.states.push(Stream::default());
            self.states.len() - 1
        })
    }

    fn recording(&self, event: EventId) -> Status<Option<&Recording>> {
        let recording = self.events.get(event.0 as usize).map(Option::as_ref);
        recording.ok_or(DriverError::InvalidValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_complete_in_order_up_to_the_given_count() {
        let mut streams = SimStreams::new(true);
        let stream = StreamId::nth(1);
        let events: Vec<EventId> = (0..3).map(|_| streams.create().unwrap()).collect();
        for &event in &events {
            assert!(streams.is_complete(event).unwrap(), "not recorded yet");
            streams.record(event, stream).unwrap();
        }
        let state = |streams: &SimStreams| -> Vec<bool> {
            events
                .iter()
                .map(|&e| streams.is_complete(e).unwrap())
                .collect()
        };
        streams.complete(stream, 1);
        assert_eq!(state(&streams), [true, false, false]);
        assert!(!streams.all_complete());
        assert_eq!(streams.complete_through(events[1]), Ok(()));
        assert_eq!(state(&streams), [true, true, false]);
        streams.complete(stream, u64::MAX);
        assert_eq!(state(&streams), [true; 3]);
        assert!(streams.all_complete());
        let found = streams.is_complete(EventId(9));
        assert_eq!(found, Err(DriverError::InvalidValue));
    }

    #[test]
    fn events_complete_when_the_kernels_before_them_are_over() {
        let [a, b, c] = [1, 2, 3].map(StreamId::nth);
        let mut streams = SimStreams::new(false);
        let kernel = |stream, submitted_ns| Kernel {
            stream,
            ns: 100,
            host_ns: 0,
            submitted_ns,
        };
        let event = streams.create().unwrap();
        streams.record(event, a).unwrap();
        assert_eq!(streams.progress(a), (1, 1), "no kernel");
        streams.submit(kernel(a, 0));
        streams.record(event, a).unwrap();
        streams.submit(kernel(a, 50));
        streams.record(event, a).unwrap();
        assert_eq!(streams.progress(a), (3, 1));
        streams.wait(b, event).unwrap();
        streams.record(event, b).unwrap();
        streams.submit(kernel(c, 199));
        let found = [a, b].map(|stream| streams.progress(stream));
        assert_eq!(found, [(3, 2), (1, 0)]);
        streams.submit(kernel(c, 200));
        let found = [a, b].map(|stream| streams.progress(stream));
        assert_eq!(found, [(3, 3), (1, 1)]);
        streams.drain(c);
        streams.record(event, c).unwrap();
        assert!(streams.is_complete(event).unwrap(), "waited for");
    }

    #[test]
    fn waits_are_transitive() {
        let [a, b, c] = [1, 2, 3].map(StreamId::nth);
        let mut streams = SimStreams::new(true);
        let [first, second] = [streams.create().unwrap(), streams.create().unwrap()];
        streams.record(first, a).unwrap();
        streams.wait(b, first).unwrap();
        streams.record(second, b).unwrap();
        streams.wait(c, second).unwrap();
        assert!(streams.comes_after(c, a, 1), "through the other stream");
        assert!(!streams.comes_after(a, c, 1));
        assert!(!streams.comes_after(c, a, 2), "recorded later");
    }

    #[test]
    fn work_is_over_only_if_all_that_it_waits_for_is() {
        let [a, b, c] = [1, 2, 3].map(StreamId::nth);
        let mut streams = SimStreams::new(true);
        let events = [(); 3].map(|()| streams.create().unwrap());
        streams.record(events[0], a).unwrap();
        streams.record(events[1], b).unwrap();
        streams.wait(b, events[0]).unwrap();
        streams.complete(b, 1);
        let found = streams.progress(a);
        assert_eq!(found, (1, 0), "that event was before the wait");
        streams.record(events[1], b).unwrap();
        streams.wait(c, events[1]).unwrap();
        streams.record(events[2], c).unwrap();
        streams.complete(c, 1);
        let found = [a, b].map(|stream| streams.progress(stream));
        assert_eq!(found, [(1, 1), (2, 2)]);
    }
}
