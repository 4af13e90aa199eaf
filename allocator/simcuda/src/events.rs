//! Events.

use std::collections::HashMap;

use coalesce_alloc::driver::{Driver, EventId, StreamId};
use foldhash::fast::FixedState;

use crate::captures::Mark;
use crate::errors::{Code, Outcome};
use crate::state::Sim;
use crate::transfer::Operation;
use crate::watchdogs::Watchdogs;

/// The first handle, and the distance between handles.
const FIRST: u64 = 0x2000_0000;
const STEP: u64 = 0x40;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`: the record or wait is an operation of the
/// captured graph.
pub(crate) const EXTERNAL: u32 = 1;

/// How long an operation takes, as events measure it.
const OPERATION_MS: f32 = 0.01;

/// An event of a device.
#[derive(Clone, Debug)]
struct Event {
    ordinal: u32,
    id: EventId,
    /// Whether the event records time.
    is_timed: bool,
    last: Last,
}

/// Where an event was recorded last.
#[derive(Clone, Debug)]
enum Last {
    Nowhere,
    LastRecord(LastRecord),
    Captured(Mark),
}

/// The last record of an event.
#[derive(Clone, Copy, Debug)]
struct LastRecord {
    stream: StreamId,
    /// Events recorded on the stream so far, including this one.
    ticket: u64,
    /// Operations performed so far on all streams.
    after: u64,
}

/// All events. Handles are never reused; events of the devices are.
#[derive(Debug, Default)]
pub(crate) struct Events {
    live: HashMap<u64, Event, FixedState>,
    /// Events of devices without a handle.
    spare: Vec<(u32, EventId)>,
    pub(crate) made: u64,
    pub(crate) destroyed: u64,
    /// Fills, copies and kernels so far on all streams: the clock of the machine.
    operations: u64,
    watchdogs: Watchdogs,
}

impl Events {
    fn get(&self, handle: u64) -> Outcome<&Event> {
        self.live.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    fn get_mut(&mut self, handle: u64) -> Outcome<&mut Event> {
        self.live.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn ensure_live(&self, handle: u64) -> Outcome {
        self.get(handle).map(drop)
    }

    /// Advances the clock unless the operation only marks or awaits an event or contains others.
    pub(crate) fn count_operation(&mut self, operation: &Operation) {
        let takes_time = !matches!(
            operation,
            Operation::RecordEvent(_) | Operation::WaitForEvent(_) | Operation::Graph(_)
        );
        self.operations += u64::from(takes_time);
    }

    /// Shows the watchdogs what was recorded before the last call.
    pub(crate) fn show_watchdogs(&mut self) {
        self.watchdogs.show(self.operations);
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
            last: Last::Nowhere,
        };
        self.events.live.insert(handle, event);
        Ok(handle)
    }

    pub(crate) fn destroy_event(&mut self, handle: u64) -> Outcome {
        let event = self
            .events
            .live
            .remove(&handle)
            .ok_or(Code::INVALID_HANDLE)?;
        self.events.destroyed += 1;
        self.events.spare.push((event.ordinal, event.id));
        Ok(())
    }

    /// Records an event at the present end of the work of a stream of its device. In a capture it marks a
    /// place of the graph; an `external` record is an operation of the graph instead.
    pub(crate) fn record_event(
        &mut self,
        here: u32,
        handle: u64,
        stream: u64,
        external: bool,
    ) -> Outcome {
        if external {
            return self.submit(here, stream, Operation::RecordEvent(handle));
        }
        match self.captures.mark(stream)? {
            Some(mark) => {
                self.events.get_mut(handle)?.last = Last::Captured(mark);
                Ok(())
            }
            None => self.record_event_now(here, handle, stream),
        }
    }

    /// Records an event on a stream that is not being captured.
    pub(crate) fn record_event_now(&mut self, here: u32, handle: u64, stream: u64) -> Outcome {
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let event = self.events.get(handle)?;
        if event.ordinal != ordinal {
            return Err(Code::INVALID_HANDLE);
        }
        let id = event.id;
        let ticket = self.on(ordinal, |device| {
            device.record_event(id, stream)?;
            Ok(device.streams().progress(stream).0)
        })?;
        self.events.get_mut(handle)?.last = Last::LastRecord(LastRecord {
            stream,
            ticket,
            after: self.events.operations,
        });
        Ok(())
    }

    /// The record of an event whose completion is asked for, if it was recorded. Fails during a capture.
    fn last_record(&mut self, handle: u64) -> Outcome<Option<LastRecord>> {
        match &self.events.get(handle)?.last {
            Last::Captured(mark) => Err(self.captures.refuse(mark)),
            Last::Nowhere => self.captures.ensure_safe_call().map(|()| None),
            Last::LastRecord(recorded) => {
                self.captures.ensure_safe_call().map(|()| Some(*recorded))
            }
        }
    }

    /// Fails as not ready until the work before the event is done.
    pub(crate) fn query_event(&mut self, handle: u64) -> Outcome {
        let recorded = self.last_record(handle)?;
        if recorded.is_some_and(|last| self.events.watchdogs.are_hidden(last.after)) {
            return Err(Code::NOT_READY);
        }
        let &Event { ordinal, id, .. } = self.events.get(handle)?;
        let is_complete = self.on(ordinal, |device| device.event_is_complete(id))?;
        if is_complete || recorded.is_none() {
            Ok(())
        } else {
            Err(Code::NOT_READY)
        }
    }

    pub(crate) fn synchronize_event(&mut self, handle: u64) -> Outcome {
        if self.last_record(handle)?.is_none() {
            return Ok(());
        }
        let &Event { ordinal, id, .. } = self.events.get(handle)?;
        self.on(ordinal, |device| device.synchronize_event(id))?;
        self.trim_idle_pools(ordinal)
    }

    /// Makes a stream of any device wait for an event. Waiting for one recorded in a capture makes the
    /// stream part of the capture; an `external` wait is an operation of the graph instead.
    pub(crate) fn wait_event(
        &mut self,
        here: u32,
        stream: u64,
        handle: u64,
        external: bool,
    ) -> Outcome {
        self.streams.get(here, stream)?;
        if external {
            return self.submit(here, stream, Operation::WaitForEvent(handle));
        }
        match &self.events.get(handle)?.last {
            Last::Captured(mark) => self.captures.join(stream, mark),
            Last::Nowhere => Ok(()),
            Last::LastRecord(_) => {
                self.captures.ensure_may_wait(stream)?;
                self.wait_event_now(here, stream, handle)
            }
        }
    }

    /// Makes a stream that is not captured wait for an event.
    pub(crate) fn wait_event_now(&mut self, here: u32, stream: u64, handle: u64) -> Outcome {
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let &Event {
            ordinal: owner,
            id,
            ref last,
            ..
        } = self.events.get(handle)?;
        let &Last::LastRecord(recorded) = last else {
            return Ok(());
        };
        if let Some(contents) = &mut self.contents {
            let marked = (owner, recorded.stream);
            contents.wait((ordinal, stream), marked, recorded.ticket);
        }
        if ordinal == owner {
            self.on(ordinal, |device| device.wait_event(stream, id))?;
        }
        Ok(())
    }

    /// Returns the milliseconds between two events, by the number of operations between them. Work takes no time here,
    /// and host time would let chance decide which of several algorithms a program finds to be the fastest.
    pub(crate) fn elapsed_ms(&mut self, start: u64, end: u64) -> Outcome<f32> {
        let mut after = |handle| -> Outcome<u64> {
            let recorded = self.last_record(handle)?;
            let is_timed = self.events.get(handle)?.is_timed;
            let timed = recorded.filter(|_| is_timed);
            timed.map(|it| it.after).ok_or(Code::INVALID_HANDLE)
        };
        let (from, to) = (after(start)?, after(end)?);
        for event in [start, end] {
            self.query_event(event)?;
        }
        Ok((to.cast_signed() - from.cast_signed()) as f32 * OPERATION_MS)
    }
}
