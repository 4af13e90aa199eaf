//! Recorded traces: the operations of a program on its allocator, one event a line.
//!
//! ```text
//! # {"model": "gpt2-small", "batch": 8, …}      optional: a JSON object
//! op,id,bytes,stream,tag
//! alloc,ID,BYTES,STREAM,OPERATOR                  an id is unique among live allocations
//! free,ID,BYTES,STREAM,                           bytes and stream as in the alloc
//! mark,ID,0,STREAM,record_stream                  the allocation is also used on that stream
//! mark,-1,0,0,PHASE
//! ```
//!
//! Fields are not quoted, so a stray quote cannot swallow the lines behind it. A trace is read while it is
//! replayed; only the live ids are kept in memory, to find mistakes.

use std::borrow::Cow;
use std::io::Write;

use memchr::memchr;
use serde_json::{Map, Value};

use super::file::{FileError, InputFile, Lines};
use super::source::{Origin, Source};
use super::stem;
use crate::live::LiveTable;
use crate::op::{Answer, Op, Sink, Workload, WorkloadError};

const COLUMNS: &str = "op,id,bytes,stream,tag";

/// A trace in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceFile {
    origin: Origin,
    name: String,
    header: Map<String, Value>,
}

impl TraceFile {
    /// Opens a trace and reads its header.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or is not a trace.
    pub fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        Self::new(InputFile::open(source)?)
    }

    pub(super) fn new(file: InputFile) -> Result<Self, FileError> {
        let origin = file.origin().clone();
        Ok(Self {
            name: stem(origin.path()),
            origin,
            header: read_header(&mut file.lines())?,
        })
    }

    /// The description that the recorder wrote.
    #[must_use]
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }
}

impl Workload for TraceFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut lines = InputFile::of(self.origin.clone())?.lines();
        read_header(&mut lines)?;
        let mut live = LiveIds::default();
        while let Some(line) = lines.next()? {
            if line.text.is_empty() {
                continue;
            }
            let event = match Event::plain(line.text) {
                Some(event) => Ok(event),
                None => Event::parse(line.text),
            };
            let event = event.and_then(|event| live.check(&event).map(|()| event.op));
            sink.op(event.map_err(|reason| line.error(reason))?)?;
        }
        Ok(())
    }
}

/// Reads the JSON line, if there is one, and the line of column names.
fn read_header(lines: &mut Lines) -> Result<Map<String, Value>, FileError> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    let mut header = Map::new();
    let mut line = lines.next_or_empty()?;
    let mut text = line.text.trim_start_matches(BYTE_ORDER_MARK);
    if let Some(object) = text.strip_prefix('#') {
        header = serde_json::from_str(object)
            .map_err(|error| line.error(format!("the header is not a JSON object: {error}")))?;
        line = lines.next_or_empty()?;
        text = line.text;
    }
    if text == COLUMNS {
        return Ok(header);
    }
    let shown = line.excerpt();
    Err(line.error(format!(
        "not a trace: expected the columns '{COLUMNS}', found '{shown}'"
    )))
}

struct Event<'a> {
    op: Op<'a>,
    /// Of an allocation or a free.
    bytes: u64,
    /// Of an allocation or a free.
    stream: u32,
}

impl<'a> Event<'a> {
    /// Parses an allocation or a free that has only the four columns, as nearly all lines do. `None` for any other line.
    fn plain(text: &'a str) -> Option<Self> {
        let (is_free, rest) = match text.as_bytes() {
            [b'a', b'l', b'l', b'o', b'c', b',', rest @ ..] => (false, rest),
            [b'f', b'r', b'e', b'e', b',', rest @ ..] => (true, rest),
            _ => return None,
        };
        let (id, rest) = digits(rest)?;
        let (bytes, rest) = digits(rest)?;
        let (stream, rest) = digits(rest)?;
        let stream = u32::try_from(stream).ok()?;
        if memchr(b',', rest).is_some() {
            return None;
        }
        let op = match is_free {
            true => Op::Free { id },
            false => Op::Malloc {
                id,
                bytes,
                stream,
                tag: text.get(text.len() - rest.len()..)?,
            },
        };
        Some(Self { op, bytes, stream })
    }

    fn parse(text: &'a str) -> Result<Self, String> {
        let mut fields = text.split(',');
        let [
            Some(op),
            Some(id),
            Some(bytes),
            Some(stream),
            Some(tag),
            None,
        ] = std::array::from_fn(|_| fields.next())
        else {
            let count = text.split(',').count();
            return Err(format!("{count} fields instead of the 5 of '{COLUMNS}'"));
        };
        if op == "mark" && id == "-1" {
            return Ok(Self {
                op: Op::Mark { tag },
                bytes: 0,
                stream: 0,
            });
        }
        if !["alloc", "free", "mark"].contains(&op) {
            return Err(format!(
                "unknown op '{op}'; expected one of: alloc, free, mark"
            ));
        }
        let number = |name: &str, text: &str| -> Result<u64, String> {
            text.parse()
                .map_err(|_| format!("{name} '{text}' is not a number from 0 to 2^64 - 1"))
        };
        let id = number("id", id)?;
        let bytes = number("bytes", bytes)?;
        let stream = stream
            .parse()
            .map_err(|_| format!("stream '{stream}' is not a number from 0 to 2^32 - 1"))?;
        let op = match op {
            "alloc" => Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            },
            "free" => Op::Free { id },
            _ if tag == "record_stream" => Op::RecordStream { id, stream },
            _ => {
                return Err(format!(
                    "a mark of an allocation must be record_stream, not '{tag}'; a phase has the id -1"
                ));
            }
        };
        Ok(Self { op, bytes, stream })
    }
}

/// The number at the beginning of a text, and what follows the comma behind it.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    /// Digits of which every number fits.
    const MOST: usize = 19;
    let mut number = 0;
    for (len, &byte) in text.iter().enumerate().take(MOST + 1) {
        match byte {
            b'0'..=b'9' if len < MOST => number = number * 10 + u64::from(byte - b'0'),
            b',' if len > 0 => return Some((number, &text[len + 1..])),
            _ => return None,
        }
    }
    None
}

/// The bytes and the stream of each live id.
#[derive(Default)]
struct LiveIds(LiveTable<(u64, u32)>);

impl LiveIds {
    /// Fails if the event contradicts those before it.
    fn check(&mut self, event: &Event<'_>) -> Result<(), String> {
        let request = (event.bytes, event.stream);
        match event.op {
            Op::Malloc { id, .. } => match self.0.insert(id, request) {
                Some(_) => Err(format!("id {id} is already live")),
                None => Ok(()),
            },
            Op::Free { id } => match self.0.remove(id) {
                Some(allocated) if allocated == request => Ok(()),
                Some((bytes, stream)) => Err(format!(
                    "id {id} was allocated with {bytes} bytes on stream {stream}"
                )),
                None => Err(format!("free of id {id}, which is not live")),
            },
            Op::RecordStream { id, .. } if self.0.get(id).is_none() => {
                Err(format!("record_stream of id {id}, which is not live"))
            }
            Op::RecordStream { .. } | Op::EmptyCache | Op::Surroundings(_) | Op::Mark { .. } => {
                Ok(())
            }
        }
    }
}

/// Writes the operations of `workload` as a trace. Returns how many were left out because a trace cannot
/// express them: those that empty the cache, and changes of the surroundings. An empty header is not
/// written.
///
/// # Errors
/// If the workload cannot be read or the trace cannot be written.
pub fn write(
    workload: &dyn Workload,
    header: &Map<String, Value>,
    out: &mut dyn Write,
) -> Result<u64, WorkloadError> {
    if !header.is_empty() {
        let json = serde_json::to_string(header).map_err(std::io::Error::from)?;
        writeln!(out, "# {json}")?;
    }
    writeln!(out, "{COLUMNS}")?;
    let mut left_out = 0;
    let mut live = LiveTable::default();
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => {
                live.insert(id, (bytes, stream));
                writeln!(out, "alloc,{id},{bytes},{stream},{}", one_field(tag))?;
            }
            Op::Free { id } => {
                if let Some((bytes, stream)) = live.remove(id) {
                    writeln!(out, "free,{id},{bytes},{stream},")?;
                }
            }
            Op::RecordStream { id, stream } => {
                writeln!(out, "mark,{id},0,{stream},record_stream")?;
            }
            Op::Mark { tag } => writeln!(out, "mark,-1,0,0,{}", one_field(tag))?,
            Op::EmptyCache | Op::Surroundings(_) => left_out += 1,
        }
        Ok(Answer::Done)
    })?;
    Ok(left_out)
}

/// The tag without characters that would end the field.
fn one_field(tag: &str) -> Cow<'_, str> {
    if tag.contains([',', '\n', '\r']) {
        tag.replace(',', ";").replace(['\n', '\r'], " ").into()
    } else {
        tag.into()
    }
}
