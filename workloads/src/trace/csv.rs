//! The lines of a trace.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};
use foldhash::fast::FixedState;
use serde_json::{Map, Value};

use super::TraceError;
use crate::op::{Op, Sink, WorkloadError};

const COLUMNS: &str = "op,id,bytes,stream,tag";

/// A line that is wrong.
#[derive(Debug)]
pub(super) struct LineError {
    line: u64,
    reason: String,
}

impl LineError {
    fn new(line: u64, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }

    pub(super) fn in_file(self, path: &Path) -> TraceError {
        TraceError {
            file: path.to_owned(),
            line: Some(self.line),
            reason: self.reason,
        }
    }
}

/// Why reading ended early.
pub(super) enum ReadError {
    Line(LineError),
    Sink(WorkloadError),
}

impl From<LineError> for ReadError {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

/// What stands before the events.
pub(super) struct Header {
    pub(super) json: Map<String, Value>,
    /// Lines it takes.
    pub(super) lines: u64,
}

/// Reads the JSON line, if there is one, and the line of column names.
pub(super) fn read_header(lines: &mut impl BufRead) -> Result<Header, LineError> {
    let mut header = Header {
        json: Map::new(),
        lines: 1,
    };
    let mut line = read_line(lines, 1)?;
    if let Some(json) = line.strip_prefix('#') {
        header.json = serde_json::from_str(json)
            .map_err(|error| LineError::new(1, format!("the header is no JSON object: {error}")))?;
        header.lines = 2;
        line = read_line(lines, 2)?;
    }
    if line != COLUMNS {
        let shown: String = line.chars().take(80).collect();
        let reason = format!("not a trace: the columns should be '{COLUMNS}', not '{shown}'");
        return Err(LineError::new(header.lines, reason));
    }
    Ok(header)
}

fn read_line(lines: &mut impl BufRead, number: u64) -> Result<String, LineError> {
    /// More than any header; what has no line break until then is no trace.
    const LONGEST: u64 = 1 << 20;
    let mut line = Vec::new();
    std::io::Read::take(lines, LONGEST)
        .read_until(b'\n', &mut line)
        .map_err(|error| LineError::new(number, error.to_string()))?;
    let line = String::from_utf8(line).map_err(|_| LineError::new(number, "not text"))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Sends all events, which follow the header, to `sink`.
pub(super) fn read_events(
    header: &Header,
    lines: impl BufRead,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(lines);
    let mut record = ByteRecord::new();
    let mut live = Live::default();
    loop {
        let start = reader.position().line() + header.lines;
        let more = reader.read_byte_record(&mut record).map_err(|error| {
            let reason = format!("the file cannot be read on: {error}");
            LineError::new(reader.position().line() + header.lines, reason)
        })?;
        if !more {
            return Ok(());
        }
        // Empty lines in between are skipped, so the record is on the last line that was read.
        let line = start.max(reader.position().line() + header.lines - 1);
        let event = parse(&record).map_err(|reason| LineError::new(line, reason))?;
        live.check(&event, &record)
            .map_err(|reason| LineError::new(line, reason))?;
        sink.op(event).map_err(ReadError::Sink)?;
    }
}

fn parse(record: &ByteRecord) -> Result<Op<'_>, String> {
    let field = |index: usize| -> Result<&str, String> {
        let bytes = record
            .get(index)
            .ok_or_else(|| format!("{} fields, not the 5 of '{COLUMNS}'", record.len()))?;
        std::str::from_utf8(bytes).map_err(|_| "not text".to_owned())
    };
    let number = |index: usize, name: &str| -> Result<u64, String> {
        let text = field(index)?;
        text.parse()
            .map_err(|_| format!("{name} '{text}' is no number between 0 and 2^64"))
    };
    let stream = || -> Result<u32, String> {
        let text = field(3)?;
        text.parse()
            .map_err(|_| format!("stream '{text}' is no number between 0 and 2^32"))
    };
    match field(0)? {
        "alloc" => Ok(Op::Malloc {
            id: number(1, "id")?,
            bytes: number(2, "bytes")?,
            stream: stream()?,
            tag: field(4)?,
        }),
        "free" => Ok(Op::Free {
            id: number(1, "id")?,
        }),
        "mark" if field(4)? == "record_stream" => Ok(Op::RecordStream {
            id: number(1, "id")?,
            stream: stream()?,
        }),
        "mark" => Ok(Op::Mark { tag: field(4)? }),
        other => Err(format!("unknown op '{other}': alloc, free or mark")),
    }
}

/// The bytes and the stream of each live id.
#[derive(Default)]
struct Live(HashMap<u64, (u64, u32), FixedState>);

impl Live {
    /// Fails if the event cannot follow those before it.
    fn check(&mut self, event: &Op<'_>, record: &ByteRecord) -> Result<(), String> {
        match *event {
            Op::Malloc {
                id, bytes, stream, ..
            } => match self.0.insert(id, (bytes, stream)) {
                Some(_) => Err(format!("id {id} is live already")),
                None => Ok(()),
            },
            Op::Free { id } => {
                let Some((bytes, stream)) = self.0.remove(&id) else {
                    return Err(format!("free of id {id}, which is not live"));
                };
                let said = (record.get(2), record.get(3));
                let (bytes, stream) = (bytes.to_string(), stream.to_string());
                if said != (Some(bytes.as_bytes()), Some(stream.as_bytes())) {
                    return Err(format!(
                        "id {id} was allocated with {bytes} bytes on stream {stream}"
                    ));
                }
                Ok(())
            }
            Op::RecordStream { id, .. } if !self.0.contains_key(&id) => {
                Err(format!("record_stream of id {id}, which is not live"))
            }
            _ => Ok(()),
        }
    }
}
