//! Streams and events of the simulated device.
//!
//! A stream is two counters: how many events were recorded on it and how many of them are
//! complete. They complete in the order they were recorded in.

use std::collections::BTreeMap;

use super::super::{DriverError, EventId, StreamId};

#[derive(Debug, Default)]
struct Stream {
    recorded: u64,
    /// At most `recorded`.
    completed: u64,
    /// Times all its work was waited for, with events or without.
    drained: u64,
}

/// The last time an event was recorded: it is complete once `ticket` events of the stream are.
#[derive(Clone, Copy, Debug)]
struct Recording {
    stream: StreamId,
    ticket: u64,
}

/// All streams of a device and the events recorded on them.
#[derive(Debug)]
pub struct Streams {
    hold: bool,
    streams: BTreeMap<StreamId, Stream>,
    events: Vec<Option<Recording>>,
    /// Times all streams were waited for.
    all_drained: u64,
}

impl Streams {
    pub(super) fn new(hold: bool) -> Self {
        Self {
            hold,
            streams: BTreeMap::new(),
            events: Vec::new(),
            all_drained: 0,
        }
    }

    /// Whether events recorded from now on stay pending until completed or waited for.
    pub fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Completes the oldest `count` pending events of a stream, or all if there are fewer.
    pub fn complete(&mut self, stream: StreamId, count: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.completed = stream.completed.saturating_add(count).min(stream.recorded);
        }
    }

    /// Lets a stream finish all its work.
    pub fn drain(&mut self, stream: StreamId) {
        let stream = self.streams.entry(stream).or_default();
        stream.completed = stream.recorded;
        stream.drained += 1;
    }

    /// Lets all streams finish all their work.
    pub fn complete_all(&mut self) {
        for stream in self.streams.values_mut() {
            stream.completed = stream.recorded;
        }
        self.all_drained += 1;
    }

    /// How often a stream has finished all its work at someone's wish.
    #[must_use]
    pub fn times_drained(&self, stream: StreamId) -> u64 {
        let alone = self.streams.get(&stream);
        self.all_drained + alone.map_or(0, |stream| stream.drained)
    }

    /// How many events were recorded on a stream, and how many of them are complete.
    #[must_use]
    pub fn progress(&self, stream: StreamId) -> (u64, u64) {
        self.streams
            .get(&stream)
            .map_or((0, 0), |stream| (stream.recorded, stream.completed))
    }

    pub(super) fn create(&mut self) -> Result<EventId, DriverError> {
        let id = u32::try_from(self.events.len()).map_err(|_| DriverError::OutOfMemory)?;
        self.events.push(None);
        Ok(EventId(id))
    }

    pub(super) fn record(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        let slot = self
            .events
            .get_mut(event.0 as usize)
            .ok_or(DriverError::InvalidValue)?;
        let counters = self.streams.entry(stream).or_default();
        counters.recorded += 1;
        if !self.hold {
            counters.completed = counters.recorded;
        }
        *slot = Some(Recording {
            stream,
            ticket: counters.recorded,
        });
        Ok(())
    }

    pub(super) fn is_complete(&self, event: EventId) -> Result<bool, DriverError> {
        let Some(recording) = self.recording(event)? else {
            return Ok(true);
        };
        Ok(self
            .streams
            .get(&recording.stream)
            .is_some_and(|stream| stream.completed >= recording.ticket))
    }

    /// Completes an event and all before it.
    pub(super) fn complete_through(&mut self, event: EventId) -> Result<(), DriverError> {
        let Some(recording) = self.recording(event)? else {
            return Ok(());
        };
        if let Some(stream) = self.streams.get_mut(&recording.stream) {
            stream.completed = stream.completed.max(recording.ticket);
        }
        Ok(())
    }

    fn recording(&self, event: EventId) -> Result<Option<Recording>, DriverError> {
        self.events
            .get(event.0 as usize)
            .copied()
            .ok_or(DriverError::InvalidValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_complete_in_order_and_only_as_far_as_told() {
        let mut streams = Streams::new(true);
        let stream = StreamId::nth(1);
        let events: Vec<EventId> = (0..3).map(|_| streams.create().unwrap()).collect();
        for &event in &events {
            assert!(streams.is_complete(event).unwrap(), "not recorded yet");
            streams.record(event, stream).unwrap();
        }
        let state = |streams: &Streams| -> Vec<bool> {
            events
                .iter()
                .map(|&e| streams.is_complete(e).unwrap())
                .collect()
        };
        streams.complete(stream, 1);
        assert_eq!(state(&streams), [true, false, false]);
        assert_eq!(streams.complete_through(events[1]), Ok(()));
        assert_eq!(state(&streams), [true, true, false]);
        streams.complete(stream, u64::MAX);
        assert_eq!(state(&streams), [true; 3]);
        assert_eq!(
            streams.is_complete(EventId(9)),
            Err(DriverError::InvalidValue)
        );
    }
}
