//! Recorded traces in binary form: what a [trace](super::trace) contains, in about four bytes an event. It is read several times as fast. Reading keeps only the live allocations and the tags.
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
mod slots;
mod start;
mod write;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use self::fields::Fields;
use self::slots::Slots;
pub use self::write::{write, write_devices};
use super::buffered::{Buffered, Reason};
use super::file::{FileError, InputFile};
use super::scopes::Scopes;
use super::sections::Sections;
use super::source::{Origin, Source};
use super::stem;
use crate::conditions::RecordedConditions;
use crate::course::{Course, FAILED};
use crate::op::{Op, Sink, Workload, WorkloadError};
use crate::start::StartState;

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

/// A binary trace in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct BinaryTrace {
    origin: Origin,
    name: String,
    header: Map<String, Value>,
    /// The devices of all sections; empty if the trace has no sections.
    devices: Vec<u32>,
    /// The section to read.
    section: usize,
    failures: Option<u64>,
    conditions: Option<RecordedConditions>,
    start: Option<Arc<StartState>>,
}

impl BinaryTrace {
    /// Opens a trace and reads its header. Of a trace of several devices, it is the first.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or is not a binary trace.
    pub fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        Self::of_section(InputFile::open(source)?, 0)
    }

    /// A section of a trace, or the whole if it has none.
    pub(super) fn of_section(file: InputFile, section: usize) -> Result<Self, FileError> {
        let origin = file.origin().clone();
        let mut reader = Reader::new(file.into_content());
        let mut read = || {
            let header = reader.header()?;
            let sections = reader.enter(&header, section)?;
            let recorded = sections.recorded(section);
            let conditions = recorded.conditions()?;
            let start = recorded.start(reader.start()?)?;
            Ok(Self {
                name: stem(origin.path()),
                origin: origin.clone(),
                header,
                devices: sections.devices,
                section,
                failures: recorded.failures,
                conditions,
                start: start.map(Arc::new),
            })
        };
        let read: Result<_, Reason> = read();
        read.map_err(|reason| reader.error(origin.path(), reason))
    }

    /// The description that the recorder wrote.
    #[must_use]
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }

    /// The numbers of the devices of a trace of several, in the order of their sections.
    #[must_use]
    pub fn devices(&self) -> &[u32] {
        &self.devices
    }
}

impl Workload for BinaryTrace {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let file = InputFile::of(self.origin.clone())?;
        let mut reader = Reader::new(file.into_content());
        let mut read = || {
            let header = reader.header()?;
            reader.enter(&header, self.section)?;
            reader.start()?;
            let mut course = Course::new(self.failures);
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
            Err(reason) => Err(reader.error(self.origin.path(), reason).into()),
        }
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.start.as_ref()
    }

    fn recorded_failures(&self) -> Option<u64> {
        self.failures
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        self.conditions.as_ref()
    }
}

/// Reads a binary trace.
struct Reader {
    input: Buffered<Box<dyn BufRead>>,
    /// The position of the current event.
    event_at: u64,
    events: u64,
    version: u8,
    /// Sections behind the current one.
    later_sections: usize,
    slots: Slots,
    scopes: Scopes,
    /// Failures that the header counts and that have not come.
    failures: Option<u64>,
    /// The id and the stream of the last malloc.
    id: u64,
    stream: u32,
    tags: Vec<Box<str>>,
    /// The last text that has no place.
    text: String,
}

impl Reader {
    fn new(content: Box<dyn BufRead>) -> Self {
        Self {
            input: Buffered::new(content),
            event_at: 0,
            events: 0,
            version: VERSION,
            later_sections: 0,
            slots: Slots::default(),
            scopes: Scopes::default(),
            failures: None,
            id: u64::MAX,
            stream: 0,
            tags: Vec::new(),
            text: String::new(),
        }
    }

    /// An error in the current event.
    fn error(&self, path: &Path, reason: Reason) -> FileError {
        FileError::at_byte(path, self.event_at, reason)
    }

    /// Reads what is before the first event.
    fn header(&mut self) -> Result<Map<String, Value>, Reason> {
        let magic: [u8; MAGIC.len()] = self.input.array()?;
        if magic != MAGIC {
            return Err("not a binary trace".to_owned());
        }
        self.event_at = self.input.at();
        let [version] = self.input.array()?;
        if ![WITHOUT_START, VERSION, OF_SEVERAL].contains(&version) {
            return Err(format!(
                "a binary trace of version {version}, which a newer program wrote; expected version {WITHOUT_START}, \
                 {VERSION} or {OF_SEVERAL}"
            ));
        }
        self.version = version;
        self.event_at = self.input.at();
        let mut head = Fields::of(&mut self.input)?;
        let length = head.number()?;
        let used = head.used;
        self.input.skip(used);
        self.read_text(length)?;
        if self.text.is_empty() {
            return Ok(Map::new());
        }
        serde_json::from_str(&self.text)
            .map_err(|error| format!("the header is not a JSON object: {error}"))
    }

    /// Reads up to a section, and returns what the header tells about all sections.
    fn enter(&mut self, header: &Map<String, Value>, section: usize) -> Result<Sections, Reason> {
        let sections = Sections::of(header)?;
        let count = sections.devices.len();
        if (count > 0) != (self.version == OF_SEVERAL) {
            return Err(match self.version {
                OF_SEVERAL => "the header does not list the devices".to_owned(),
                version => format!("the header lists devices, which version {version} has not"),
            });
        }
        for index in 0..=section {
            if index > 0 {
                self.start()?;
                while self.next()?.is_some() {}
            }
            self.begin_section();
            self.later_sections = count.saturating_sub(index + 1);
            self.failures = sections.recorded(index).failures;
        }
        Ok(sections)
    }

    /// Forgets the events of the section before.
    fn begin_section(&mut self) {
        self.events = 0;
        self.slots = Slots::default();
        self.scopes = Scopes::default();
        (self.id, self.stream) = (u64::MAX, 0);
        self.tags.clear();
    }

    /// The next operation; none at the end.
    fn next(&mut self) -> Result<Option<Op<'_>>, Reason> {
        self.event_at = self.input.at();
        let mut fields = Fields::of(&mut self.input)?;
        let Some(head) = fields.byte() else {
            return Err(format!(
                "the file ends after {} events without a mark of its end; it is truncated",
                self.events
            ));
        };
        let flags = head & !KIND;
        self.events += u64::from(head != kind::END);
        Ok(Some(match (head & KIND, flags) {
            (kind::MALLOC, _) if flags & !malloc::ALL == 0 => {
                let delta = match flags & malloc::HAS_DELTA {
                    0 => 0,
                    _ => fields.number()?,
                };
                let bytes = fields.number()?;
                if flags & malloc::HAS_STREAM != 0 {
                    self.stream = fields.stream()?;
                }
                let tag = fields.number()?;
                let length = match tag {
                    0 => fields.number()?,
                    _ => 0,
                };
                let used = fields.used;
                self.input.skip(used);
                self.id = self.id.wrapping_add(1).wrapping_add(unsigned(delta));
                if flags & malloc::FAILED == 0 {
                    self.slots.take(self.id)?;
                } else {
                    self.count_failure()?;
                }
                let (id, stream, failed) = (self.id, self.stream, flags & malloc::FAILED != 0);
                let tag = self.tag(tag, length)?;
                if failed && !tag.starts_with(FAILED) {
                    return Err(format!(
                        "the tag of a failed request must begin with '{FAILED}'"
                    ));
                }
                Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                }
            }
            (kind::FREE, 0) => {
                let slot = fields.number()?;
                let used = fields.used;
                self.input.skip(used);
                let id = self.slots.release(slot)?;
                Op::Free { id }
            }
            (kind::RECORD_STREAM, 0) => {
                let (slot, stream) = (fields.number()?, fields.stream()?);
                let used = fields.used;
                self.input.skip(used);
                let id = self.slots.id(slot)?;
                Op::RecordStream { id, stream }
            }
            (kind::MARK, 0) => {
                let length = fields.number()?;
                let used = fields.used;
                self.input.skip(used);
                self.read_text(length)?;
                Op::Mark { tag: &self.text }
            }
            (kind::EMPTY_CACHE, 0) => {
                self.input.skip(1);
                Op::EmptyCache
            }
            (kind::SURROUNDINGS, change::FOREIGN..=change::FINISH) => {
                let change = fields.change(flags)?;
                let used = fields.used;
                self.input.skip(used);
                Op::Surroundings(change)
            }
            (kind::SURROUNDINGS, limit::SET) => {
                let bytes = Some(fields.number()?);
                let used = fields.used;
                self.input.skip(used);
                Op::Limit { bytes }
            }
            (kind::SURROUNDINGS, limit::NONE) => {
                self.input.skip(1);
                Op::Limit { bytes: None }
            }
            (kind::POOL, pool::BEGIN..=pool::EMPTY) => {
                let call = fields.pool_call(flags)?;
                let used = fields.used;
                self.input.skip(used);
                self.scopes.check(call)?;
                Op::Pool(call)
            }
            (kind::END, 0) => {
                let expected = fields.number()?;
                let used = fields.used;
                self.input.skip(used);
                return self.end(expected).map(|()| None);
            }
            _ => return Err(format!("0x{head:02x} is not an event")),
        }))
    }

    /// Checks the end of a section.
    fn end(&mut self, expected: u64) -> Result<(), Reason> {
        let events = self.events;
        if events != expected {
            return Err(format!("the end of {expected} events after {events}"));
        }
        if let Some(missing @ 1..) = self.failures {
            return Err(format!(
                "{missing} of the failures that the header counts are missing"
            ));
        }
        match self.input.peek(1)? {
            [] if self.later_sections > 0 => {
                Err("the file ends without all its sections; it is truncated".to_owned())
            }
            [] => Ok(()),
            _ if self.later_sections > 0 => Ok(()),
            _ => Err("more bytes follow the end of the trace".to_owned()),
        }
    }

    /// Counts a request that failed when recorded.
    fn count_failure(&mut self) -> Result<(), Reason> {
        let left = self.failures.and_then(|left| left.checked_sub(1));
        let left = left.ok_or("a failed request that the header does not count in 'failures'")?;
        self.failures = Some(left);
        self.slots.ensure_new(self.id)
    }

    /// The tag with this place, or a new one of `length` bytes.
    fn tag(&mut self, place: u64, length: u64) -> Result<&str, Reason> {
        if place > 0 {
            let index = usize::try_from(place - 1).unwrap_or(usize::MAX);
            let known = self.tags.len();
            let tag = self.tags.get(index);
            return tag
                .map(|tag| &**tag)
                .ok_or_else(|| format!("tag {place}, but there are only {known}"));
        }
        self.read_text(length)?;
        if self.tags.len() < MOST_TAGS {
            self.tags.push(self.text.as_str().into());
        }
        Ok(&self.text)
    }

    /// Reads a text.
    fn read_text(&mut self, length: u64) -> Result<(), Reason> {
        if length > LONGEST_TEXT {
            return Err(format!(
                "a text of {length} bytes; expected at most {LONGEST_TEXT}"
            ));
        }
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.clear();
        self.input.take(length, "a text", &mut bytes)?;
        self.text = String::from_utf8(bytes).map_err(|_| "a text that is not UTF-8")?;
        Ok(())
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
