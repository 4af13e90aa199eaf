//! Reads the header and the events of a binary trace.

use std::io::BufRead;
use std::path::Path;

use serde_json::{Map, Value};

use super::fields::Fields;
use super::slots::Slots;
use super::{
    KIND, LONGEST_TEXT, MAGIC, MOST_TAGS, OF_SEVERAL, VERSION, WITHOUT_START, change, kind, limit,
    malloc, pool, unsigned,
};
use crate::budget::{Budget, StreamsSeen};
use crate::course::FAILED;
use crate::formats::buffered::{Buffered, Reason};
use crate::formats::file::FileError;
use crate::formats::scopes::Scopes;
use crate::formats::sections::Sections;
use crate::op::Op;

/// Reads a binary trace.
pub(super) struct Reader {
    pub(super) input: Buffered<Box<dyn BufRead>>,
    pub(super) budget: Budget,
    /// The position of the current event.
    pub(super) event_at: u64,
    events: u64,
    pub(super) version: u8,
    /// Sections behind the current one.
    later_sections: usize,
    slots: Slots,
    streams: StreamsSeen,
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
    pub(super) fn new(content: Box<dyn BufRead>, budget: Budget) -> Self {
        Self {
            input: Buffered::new(content),
            budget,
            event_at: 0,
            events: 0,
            version: VERSION,
            later_sections: 0,
            slots: Slots::default(),
            streams: StreamsSeen::default(),
            scopes: Scopes::default(),
            failures: None,
            id: u64::MAX,
            stream: 0,
            tags: Vec::new(),
            text: String::new(),
        }
    }

    /// An error in the current event.
    pub(super) fn error(&self, path: &Path, reason: Reason) -> FileError {
        FileError::at_byte(path, self.event_at, reason)
    }

    /// Reads what is before the first event.
    pub(super) fn header(&mut self) -> Result<Map<String, Value>, Reason> {
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
    pub(super) fn enter(
        &mut self,
        header: &Map<String, Value>,
        section: usize,
    ) -> Result<Sections, Reason> {
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
    pub(super) fn next(&mut self) -> Result<Option<Op<'_>>, Reason> {
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
                    self.streams.add(self.stream)?;
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
                self.streams.add(stream)?;
                let id = self.slots.record_use(slot)?;
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
        let left = self
            .failures
            .and_then(|left| left.checked_sub(1))
            .ok_or("a failed request that the header does not count in 'failures'")?;
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
