//! Streams.

use std::collections::HashMap;

use coalesce_alloc::driver::{Driver, StreamId};
use foldhash::fast::FixedState;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The first handle, and the distance between handles. Allocators may order by handle.
const FIRST: u64 = 0x10_0000;
const STEP: u64 = 0x100;

/// The handle of the default stream.
pub(crate) const DEFAULT: u64 = 0;

/// Handles 0 to 2 all mean the default stream: the plain one, `CU_STREAM_LEGACY` and
/// `CU_STREAM_PER_THREAD`.
pub(crate) const LAST_DEFAULT: u64 = 2;

/// A stream made by the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) ordinal: u32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

/// All streams. Handles are never reused.
///
/// Streams are independent of each other. Unlike in CUDA, nothing waits for the legacy default stream.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    live: HashMap<u64, Stream, FixedState>,
    made: u64,
}

impl StreamTable {
    pub(crate) fn create(&mut self, stream: Stream) -> u64 {
        let handle = FIRST + STEP * self.made;
        self.made += 1;
        self.live.insert(handle, stream);
        handle
    }

    pub(crate) fn destroy(&mut self, handle: u64) -> Outcome {
        if self.is_unknown(handle) {
            return Ok(());
        }
        let stream = self.live.remove(&handle);
        stream.map(drop).ok_or(Code::INVALID_HANDLE)
    }

    /// The properties of a stream. Streams not made here have no flags.
    pub(crate) fn get(&self, here: u32, handle: u64) -> Outcome<Stream> {
        if handle <= LAST_DEFAULT || self.is_unknown(handle) {
            return Ok(Stream {
                ordinal: here,
                flags: 0,
                priority: 0,
            });
        }
        let stream = self.live.get(&handle).copied();
        stream.ok_or(Code::INVALID_HANDLE)
    }

    /// The device of a stream and its name there, for a program whose current device is `here`.
    pub(crate) fn resolve(&self, here: u32, handle: u64) -> Outcome<(u32, StreamId)> {
        let stream = self.get(here, handle)?;
        let is_default = handle <= LAST_DEFAULT;
        let id = if is_default { 0 } else { handle };
        Ok((stream.ordinal, StreamId(id)))
    }

    /// Whether a handle is foreign: the oracle makes up its streams, which are valid.
    fn is_unknown(&self, handle: u64) -> bool {
        handle > LAST_DEFAULT && !(FIRST..FIRST + STEP * self.made).contains(&handle)
    }
}

impl Sim {
    pub(crate) fn synchronize_device(&mut self, ordinal: u32) -> Outcome {
        self.ensure_no_capture_on(ordinal)?;
        self.captures.ensure_safe_call()?;
        self.on(ordinal, Driver::synchronize_device)?;
        self.trim_idle_pools(ordinal)
    }

    /// Waits for a stream.
    pub(crate) fn synchronize_stream(&mut self, here: u32, stream: u64) -> Outcome {
        self.captures.ensure_uncaptured(stream)?;
        self.captures.ensure_safe_call()?;
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        self.on(ordinal, |device| device.synchronize_stream(stream))?;
        self.trim_idle_pools(ordinal)
    }

    /// Whether a device has done all its work, as far as its events tell.
    pub(crate) fn is_idle(&mut self, ordinal: u32) -> Outcome<bool> {
        let contents = self.contents.as_ref();
        let has_work = contents.is_some_and(|contents| contents.has_work_on(ordinal));
        Ok(!has_work && self.device(ordinal)?.sim.streams().all_complete())
    }

    /// Whether all events of a stream are complete.
    pub(crate) fn query_stream(&mut self, here: u32, stream: u64) -> Outcome {
        self.captures.ensure_uncaptured(stream)?;
        self.captures.ensure_safe_call()?;
        let (ordinal, stream) = self.streams.resolve(here, stream)?;
        let (recorded, completed) = self.device(ordinal)?.sim.streams().progress(stream);
        let contents = self.contents.as_ref();
        let has_work = contents.is_some_and(|contents| contents.has_work((ordinal, stream)));
        if recorded == completed && !has_work {
            Ok(())
        } else {
            Err(Code::NOT_READY)
        }
    }
}
