//! The lines of a trace.
//!
//! Five fields, separated by commas. There is no quoting: a line is an event whatever stands in it,
//! so that a stray quote cannot swallow what follows.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::path::Path;

use foldhash::fast::FixedState;
use serde_json::{Map, Value};

use super::TraceError;
use crate::op::{Op, Sink, WorkloadError};

pub(super) const COLUMNS: &str = "op,id,bytes,stream,tag";
/// More bytes than any line has; what has no line break until then is no trace.
const LONGEST: u64 = 1 << 20;

/// A line that is wrong.
#[derive(Debug)]
pub(super) struct LineError {
    line: u64,
    reason: String,
}

impl LineError {
    pub(super) fn new(line: u64, reason: String) -> Self {
        Self { line, reason }
    }

    pub(super) fn in_file(self, path: &Path) -> TraceError {
        TraceError::new(path, Some(self.line), self.reason)
    }
}

/// Why reading ended early.
pub(super) enum ReadError {
    Line(LineError),
    Sink(WorkloadError),
}

impl ReadError {
    pub(super) fn in_file(self, path: &Path) -> WorkloadError {
        match self {
            Self::Line(error) => error.in_file(path).into(),
            Self::Sink(error) => error,
        }
    }
}

impl From<LineError> for ReadError {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

/// A file, line by line.
pub(super) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    /// Lines read so far: the number of the one that was read last.
    count: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            line: Vec::new(),
            count: 0,
        }
    }

    /// The next line without its break, and its number.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>, LineError> {
        self.count += 1;
        let line = self.count;
        let wrong = |reason: String| LineError { line, reason };
        self.line.clear();
        let mut source = (&mut self.source).take(LONGEST);
        let read = source.read_until(b'\n', &mut self.line);
        match read.map_err(|error| wrong(format!("the file cannot be read on: {error}")))? {
            0 => return Ok(None),
            bytes if bytes as u64 == LONGEST && !self.line.ends_with(b"\n") => {
                return Err(wrong(format!("not a trace: longer than {LONGEST} bytes")));
            }
            _ => {}
        }
        let text = str::from_utf8(&self.line).map_err(|_| wrong("not text".to_owned()))?;
        Ok(Some((line, text.trim_end_matches(['\n', '\r']))))
    }

    /// Reads the JSON line, if there is one, and the line of column names.
    pub(super) fn header(&mut self) -> Result<Map<String, Value>, LineError> {
        const BYTE_ORDER_MARK: char = '\u{feff}';
        let mut json = Map::new();
        let (mut line, mut text) = self.next()?.unwrap_or((1, ""));
        text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        if let Some(object) = text.strip_prefix('#') {
            json = serde_json::from_str(object).map_err(|error| LineError {
                line,
                reason: format!("the header is no JSON object: {error}"),
            })?;
            (line, text) = self.next()?.unwrap_or((2, ""));
        }
        if text != COLUMNS {
            let shown: String = text.chars().take(80).collect();
            let reason = format!("not a trace: the columns should be '{COLUMNS}', not '{shown}'");
            return Err(LineError { line, reason });
        }
        Ok(json)
    }

    /// Sends all events, which follow the header, to `sink`. Empty lines are skipped.
    pub(super) fn events(&mut self, sink: &mut dyn Sink) -> Result<(), ReadError> {
        let mut live = Live::default();
        while let Some((line, text)) = self.next()? {
            if text.is_empty() {
                continue;
            }
            let event = Event::parse(text).and_then(|event| {
                live.check(&event)?;
                Ok(event)
            });
            let event = event.map_err(|reason| LineError { line, reason })?;
            sink.op(event.op).map_err(ReadError::Sink)?;
        }
        Ok(())
    }
}

/// What a line says.
struct Event<'a> {
    op: Op<'a>,
    /// Of an allocation and of its free.
    bytes: u64,
    /// The same.
    stream: u32,
}

impl<'a> Event<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let count = text.split(',').count();
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
            return Err(format!("{count} fields, not the 5 of '{COLUMNS}'"));
        };
        if op == "mark" && id == "-1" {
            return Ok(Self {
                op: Op::Mark { tag },
                bytes: 0,
                stream: 0,
            });
        }
        let known = ["alloc", "free", "mark"].contains(&op);
        if !known {
            return Err(format!("unknown op '{op}': alloc, free or mark"));
        }
        let number = |name: &str, text: &str| -> Result<u64, String> {
            text.parse()
                .map_err(|_| format!("{name} '{text}' is no number between 0 and 2^64"))
        };
        let id = number("id", id)?;
        let bytes = number("bytes", bytes)?;
        let stream = stream
            .parse()
            .map_err(|_| format!("stream '{stream}' is no number between 0 and 2^32"))?;
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
                    "a mark of an allocation is record_stream, not '{tag}'; a phase has the id -1"
                ));
            }
        };
        Ok(Self { op, bytes, stream })
    }
}

/// The bytes and the stream of each live id.
#[derive(Default)]
struct Live(HashMap<u64, (u64, u32), FixedState>);

impl Live {
    /// Fails if the event cannot follow those before it.
    fn check(&mut self, event: &Event<'_>) -> Result<(), String> {
        let said = (event.bytes, event.stream);
        match event.op {
            Op::Malloc { id, .. } => match self.0.insert(id, said) {
                Some(_) => Err(format!("id {id} is live already")),
                None => Ok(()),
            },
            Op::Free { id } => match self.0.remove(&id) {
                Some(allocated) if allocated == said => Ok(()),
                Some((bytes, stream)) => Err(format!(
                    "id {id} was allocated with {bytes} bytes on stream {stream}"
                )),
                None => Err(format!("free of id {id}, which is not live")),
            },
            Op::RecordStream { id, .. } if !self.0.contains_key(&id) => {
                Err(format!("record_stream of id {id}, which is not live"))
            }
            Op::RecordStream { .. } | Op::EmptyCache | Op::Around(_) | Op::Mark { .. } => Ok(()),
        }
    }
}
