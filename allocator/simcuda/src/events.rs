//! Events.

use std::collections::HashMap;
use std::time::Instant;

use coalesce_alloc::driver::{Driver, EventId, StreamId};
use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The first handle, and the distance between handles.
const FIRST: u64 = 0x2000_0000;
const STEP: u64 = 0x40;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// An event of a device.
#[derive(Clone, Copy, Debug)]
struct Event {
    ordinal: u32,
    id: EventId,
    /// Whether the event records time.
    is_timed: bool,
    recorded: Option<Recorded>,
}

/// The last record of an event.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    stream: StreamId,
    /// Events recorded on the stream so far, including this one.
    ticket: u64,
    at: Instant,
}

/// All events. Handles are never reused; events of the devices are.
#[derive(Debug, Default)]
pub(crate) struct Events {
    live: HashMap<u64, Event, FixedState>,
    /// Events of devices without a handle.
    spare: Vec<(u32, EventId)>,
    pub(crate) made: u64,
    pub(crate) destroyed: u64,
}

impl Events {
    fn get(&self, handle: u64) -> Outcome<Event> {
        self.live.get(&handle).copied().ok_or(Code::INVALID_HANDLE)
    }

    fn take_spare(&mut self, ordinal: u32) -> Option<EventId> {
        let at = self
            .spare
            .iter()
            .rposition(|&(other, _)| other == ordinal)?;
        Some(self.spare.swap_remove(at).1)
    }
}

impl Sim {
    pub(crate) fn create_event(&mut self, ordinal: u32, flags: u32) -> Outcome<u64> {
        let id = match self.events.take_spare(ordinal) {
            Some(id) => id,
            None => self.on(ordinal, Driver::create_event)?,
        };
        let handle = FIRST + STEP * self.events.made;
        self.events.made += 1;
        let event = Event {
            ordinal,
            id,
            is_timed: flags & DISABLE_TIMING == 0,
            recorded: None,
        };
        self.events.live.insert(handle, event);
        Ok(handle)
    }

    pub(crate) fn destroy_event(&mut self, handle: u64) -> Outcome {
        let event = self.events.live.remove(&handle);
        let event = event.ok_or(Code::INVALID_HANDLE)?;
        self.events.destroyed += 1;
        self.events.spare.push((event.ordinal, event.id));
        Ok(())
    }

    /// Records an event at the present end of the work of a stream of its device.
    pub(crate) fn record_event(&mut self, here: u32, handle: u64, stream: u64) -> Outcome {
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let event = self.events.get(handle)?;
        if event.ordinal != ordinal {
            return Err(Code::INVALID_HANDLE);
        }
        let ticket = self.on(ordinal, |device| {
            device.record_event(event.id, stream)?;
            Ok(device.streams().progress(stream).0)
        })?;
        if let Some(event) = self.events.live.get_mut(&handle) {
            event.recorded = Some(Recorded {
                stream,
                ticket,
                at: Instant::now(),
            });
        }
        Ok(())
    }

    /// Fails as not ready until the work before the event is done.
    pub(crate) fn query_event(&mut self, handle: u64) -> Outcome {
        let Event { ordinal, id, .. } = self.events.get(handle)?;
        let is_complete = self.on(ordinal, |device| device.event_is_complete(id))?;
        let is_recorded = self.events.get(handle)?.recorded.is_some();
        if is_complete || !is_recorded {
            Ok(())
        } else {
            Err(Code::NOT_READY)
        }
    }

    pub(crate) fn synchronize_event(&mut self, handle: u64) -> Outcome {
        let event = self.events.get(handle)?;
        if event.recorded.is_none() {
            return Ok(());
        }
        self.on(event.ordinal, |device| device.synchronize_event(event.id))?;
        self.trim_idle_pools(event.ordinal)
    }

    /// Makes a stream of any device wait for an event.
    pub(crate) fn wait_event(&mut self, here: u32, stream: u64, handle: u64) -> Outcome {
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let event = self.events.get(handle)?;
        let Some(recorded) = event.recorded else {
            return Ok(());
        };
        if let Some(contents) = &mut self.contents {
            let marked = (event.ordinal, recorded.stream);
            contents.wait((ordinal, stream), marked, recorded.ticket);
        }
        if ordinal == event.ordinal {
            self.on(ordinal, |device| device.wait_event(stream, event.id))?;
        }
        Ok(())
    }

    /// Returns milliseconds of host time between two events.
    pub(crate) fn elapsed_ms(&mut self, start: u64, end: u64) -> Outcome<f32> {
        let at = |handle| -> Outcome<Instant> {
            let event = self.events.get(handle)?;
            let recorded = event.recorded.filter(|_| event.is_timed);
            recorded.map(|it| it.at).ok_or(Code::INVALID_HANDLE)
        };
        let (from, to) = (at(start)?, at(end)?);
        for event in [start, end] {
            self.query_event(event)?;
        }
        let forth = to.saturating_duration_since(from).as_secs_f32();
        let back = from.saturating_duration_since(to).as_secs_f32();
        Ok((forth - back) * 1e3)
    }
}
