//! The contents of device memory, with `FAKE_MEMORY=1`, and the work of streams on it.
//!
//! Fills, copies and three kernels are executed; everything else leaves memory unchanged. While events
//! are held (`FAKE_HOLD_EVENTS=1`) the work of a stream is queued and done as late as possible: when a
//! later event completes, when a call waits for the stream, or when another stream that waits for it
//! proceeds. If memory is reused before its last user has finished, the late work of that user
//! overwrites it, and [`word`](coalesce_alloc::driver::contents::word) reveals this. Work on freed
//! memory breaks the device, as on a real one (`CUDA_ERROR_ILLEGAL_ADDRESS`).
//!
//! The kernels are [`FILL`](coalesce_alloc::driver::contents::FILL), [`CHECK`](coalesce_alloc::driver::contents::CHECK)
//! and [`FIND`](coalesce_alloc::driver::contents::FIND), with any number of threads.
//!
//! Memory is stored as what was written, not byte by byte: 80 GiB filled from one seed take as much
//! room as a word.

pub(crate) mod extents;
mod memory;
pub(crate) mod work;

use std::collections::BTreeMap;

use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::events::SimStreams;

use self::memory::Memory;
use self::work::{Queues, StreamOf, Work};
use crate::errors::{Code, Outcome};

/// The memory of all devices, with the pending work on it.
#[derive(Debug)]
pub(crate) struct Contents {
    memory: Memory,
    queues: Queues,
    /// Whether work is deferred.
    hold: bool,
    /// The number of events recorded on each stream.
    recorded: BTreeMap<StreamOf, u64>,
}

impl Contents {
    pub(crate) fn new(hold: bool) -> Self {
        Self {
            memory: Memory::default(),
            queues: Queues::default(),
            hold,
            recorded: BTreeMap::new(),
        }
    }

    pub(crate) fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Applies a call made on a device.
    pub(crate) fn follow(&mut self, ordinal: u32, call: &Call) {
        self.memory.follow(ordinal, call);
        match *call {
            Call::RecordEvent { stream } => {
                let recorded = self.recorded.entry((ordinal, stream)).or_default();
                *recorded += 1;
                self.queues.mark((ordinal, stream), *recorded);
            }
            Call::SynchronizeStream { stream } => self.finish((ordinal, stream)),
            Call::SynchronizeDevice => self.finish_device(ordinal),
            _ => {}
        }
    }

    /// Queues work on a stream, or does it at once.
    pub(crate) fn submit(&mut self, stream: StreamOf, work: Work) {
        self.queues.push(stream, work);
        if !self.hold {
            self.finish(stream);
        }
    }

    /// Makes later work of a stream wait for the event `ticket` of another.
    pub(crate) fn wait(&mut self, stream: StreamOf, other: StreamOf, ticket: u64) {
        self.queues.wait(stream, other, ticket);
    }

    /// Whether all of `bytes` from `addr` on is memory.
    pub(crate) fn covers(&self, addr: u64, bytes: u64) -> bool {
        self.memory.covers(addr, bytes)
    }

    pub(crate) fn has_work(&self, stream: StreamOf) -> bool {
        self.queues.has_work(stream)
    }

    pub(crate) fn has_work_on(&self, ordinal: u32) -> bool {
        let streams = self.queues.of_device(ordinal);
        streams.into_iter().any(|stream| self.has_work(stream))
    }

    /// Does all work of a stream.
    pub(crate) fn finish(&mut self, stream: StreamOf) {
        self.queues.run(stream, u64::MAX, &mut self.memory);
    }

    /// Does all work of a device.
    pub(crate) fn finish_device(&mut self, ordinal: u32) {
        for stream in self.queues.of_device(ordinal) {
            self.finish(stream);
        }
    }

    /// Does the work before the completed events.
    pub(crate) fn run_completed(&mut self, ordinal: u32, streams: &SimStreams) {
        for stream in self.queues.of_device(ordinal) {
            let (_, completed) = streams.progress(stream.1);
            self.queues.run(stream, completed, &mut self.memory);
        }
    }

    /// Completes the events whose work is done.
    pub(crate) fn complete_events(&self, ordinal: u32, streams: &mut SimStreams) {
        for stream in self.queues.of_device(ordinal) {
            let (_, completed) = streams.progress(stream.1);
            let more = self.queues.passed(stream).saturating_sub(completed);
            if more > 0 {
                streams.complete(stream.1, more);
            }
        }
    }

    /// Whether work of a device accessed invalid memory since the last call.
    pub(crate) fn take_fault(&mut self, ordinal: u32) -> bool {
        self.queues.take_fault(ordinal)
    }

    /// Reads bytes once a stream has done its work.
    pub(crate) fn read(&mut self, stream: StreamOf, addr: u64, bytes: u64) -> Outcome<Vec<u8>> {
        self.finish(stream);
        let read = self.memory.read(addr, bytes);
        read.ok_or(Code::ILLEGAL_ADDRESS)
    }
}
