//! Recorded traces in binary form: what a [trace](super::trace) contains, in about four bytes an event.
//! Reading is several times as fast, and keeps only the live allocations and the tags in memory.
//!
//! ```text
//! 8b 54 52 41 43 45 0d 0a   the magic: 0x8b, "TRACE", a line break that a conversion of texts would change
//! 02                        the version; version 1 has no SEGMENTS, and neither failed requests nor kind 7;
//!                           version 3 repeats all behind TEXT for each device that it lists
//! TEXT                      a JSON object as in the first line of a trace, or nothing
//! SEGMENTS                  the segments before the first event: their NUMBER, and each as
//!   ADDRESS BEFORE STREAM FLAGS POOL POOL NUMBER   and so many blocks; flag 1: large; flag 2: expandable
//!   BYTES REQUESTED ID                             a block; ID is 0 if it is free, and else the id plus 1
//! EVENT …                   the first byte is the kind in the lower three bits, and flags:
//!   0 [DELTA] BYTES [STREAM] TAG   malloc; flag 0x08: DELTA is there; flag 0x10: STREAM is there; flag 0x20: it failed
//!                             when recorded, and takes no slot
//!   1 SLOT                    free
//!   2 SLOT STREAM             record_stream
//!   3 TEXT                    enters a phase
//!   4                         empty_cache
//!   5 …                       surroundings; flag 0x08: other processes use NUMBER bytes, 0x10: events finish at once,
//!                             0x18: events are held, 0x20: the oldest events finish: STREAM NUMBER;
//!                             0x28: this process may reserve at most NUMBER bytes, 0x30: any amount
//!   7 …                       pools; flag 0x08: requests go to the private pool NUMBER NUMBER, 0x10: no longer,
//!                             0x18: nobody uses it any more, 0x30: its memory is returned; 0x20: a capture begins, 0x28: it ends
//!   6 NUMBER                  the end, after so many events; nothing follows
//! ```
//!
//! Numbers are LEB128: seven bits a byte, the lowest first; the highest bit says that another byte follows. A TEXT is
//! its length in bytes, and UTF-8. A TAG is 0 and a TEXT when it is new, or the place of an earlier one, counted from
//! 1; the first 65 536 have places.
//!
//! The id of a malloc is that of the malloc before it plus 1; DELTA is added to it, with the sign in the lowest bit as
//! in protocol buffers. A malloc without a STREAM has that of the malloc before it. The first one follows the id
//! 2^64 − 1 and stream 0.
//!
//! A malloc takes the SLOT that became free last, or a new one, counted from 0. So a reader finds the allocation of a
//! free without a search, and notices a free of nothing.

mod fields;
mod reader;
mod slots;
mod start;
mod write;

use std::sync::Arc;

use self::reader::Reader;
pub use self::write::{write, write_devices};
use super::buffered::Reason;
use super::file::{FileError, InputFile};
use super::source::Source;
use super::stem;
use super::trace::TraceFile;
use crate::course::Course;
use crate::op::{Sink, WorkloadError};

pub(super) const MAGIC: [u8; 8] = *b"\x8bTRACE\r\n";
const VERSION: u8 = 2;
/// The version without segments before the first event.
const WITHOUT_START: u8 = 1;
/// The version with a section for each of several devices.
const OF_SEVERAL: u8 = 3;

/// The kinds of events.
mod kind {
    pub(super) const MALLOC: u8 = 0;
    pub(super) const FREE: u8 = 1;
    pub(super) const RECORD_STREAM: u8 = 2;
    pub(super) const MARK: u8 = 3;
    pub(super) const EMPTY_CACHE: u8 = 4;
    pub(super) const SURROUNDINGS: u8 = 5;
    pub(super) const END: u8 = 6;
    pub(super) const POOL: u8 = 7;
}

/// The flags of a malloc.
mod malloc {
    pub(super) const HAS_DELTA: u8 = 0x08;
    pub(super) const HAS_STREAM: u8 = 0x10;
    pub(super) const FAILED: u8 = 0x20;
    pub(super) const ALL: u8 = HAS_DELTA | HAS_STREAM | FAILED;
}

/// The flags of a change of the surroundings.
mod change {
    pub(super) const FOREIGN: u8 = 0x08;
    pub(super) const RELEASE: u8 = 0x10;
    pub(super) const HOLD: u8 = 0x18;
    pub(super) const FINISH: u8 = 0x20;
}

/// The flags of a limit, which has the kind of a change of the surroundings.
mod limit {
    pub(super) const SET: u8 = 0x28;
    pub(super) const NONE: u8 = 0x30;
}

/// The flags of a call about private pools.
mod pool {
    pub(super) const BEGIN: u8 = 0x08;
    pub(super) const END: u8 = 0x10;
    pub(super) const RELEASE: u8 = 0x18;
    pub(super) const BEGIN_CAPTURE: u8 = 0x20;
    pub(super) const END_CAPTURE: u8 = 0x28;
    pub(super) const EMPTY: u8 = 0x30;
}

/// The bits of the first byte of an event that are its kind.
const KIND: u8 = 0x07;

/// Tags that have places.
const MOST_TAGS: usize = 1 << 16;

/// Bytes of the longest text, as of the longest line of a trace.
const LONGEST_TEXT: u64 = 1 << 20;

/// Opens a trace and reads its header. Of a trace of several devices, it is the first.
///
/// # Errors
/// [`FileError`] if the file cannot be read or is not a binary trace.
pub fn open(source: impl Into<Source>) -> Result<TraceFile, FileError> {
    of_section(InputFile::open(source)?, 0)
}

/// A section of a trace, or the whole if it has none.
pub(super) fn of_section(file: InputFile, section: usize) -> Result<TraceFile, FileError> {
    let origin = file.origin().clone();
    let budget = file.budget();
    let mut reader = Reader::new(file.into_content(), budget);
    let mut read = || {
        let header = reader.header()?;
        let sections = reader.enter(&header, section)?;
        let recorded = sections.recorded(section);
        let conditions = recorded.conditions()?;
        let start = recorded.start(reader.start()?)?;
        Ok(TraceFile {
            send: emit,
            name: stem(origin.path()),
            origin: origin.clone(),
            header,
            devices: sections.devices,
            section,
            failures: recorded.failures,
            conditions,
            start: start.map(Arc::new),
            budget,
        })
    };
    let read: Result<_, Reason> = read();
    read.map_err(|reason| reader.error(origin.path(), reason))
}

/// Sends all operations of a binary trace.
fn emit(trace: &TraceFile, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
    let file = InputFile::of(trace.origin.clone())?;
    let mut reader = Reader::new(file.into_content(), trace.budget);
    let mut read = || {
        let header = reader.header()?;
        reader.enter(&header, trace.section)?;
        reader.start()?;
        let mut course = Course::new(trace.failures);
        while let Some(op) = reader.next()? {
            match course.send(op, sink) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Ok(Some(error)),
            }
        }
        Ok(None)
    };
    match read() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(reason) => Err(reader.error(trace.origin.path(), reason).into()),
    }
}

/// A signed number as an unsigned one, with the sign in the lowest bit.
fn signed(number: u64) -> u64 {
    let number = number.cast_signed();
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// The inverse of [`signed`].
fn unsigned(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests;
