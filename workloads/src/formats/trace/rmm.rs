//! Logs of RMM's `logging_resource_adaptor`, as its replay benchmark reads them.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 4711,09:31:07.123456,allocate,0x7f3c00000000,1024,0      or `free`, or `allocate failure`
//! ```
//!
//! Source: logging_resource_adaptor_impl.cpp and benchmarks/utilities/log_parser.hpp of rapidsai/rmm
//! (2026). Pointers and streams are hexadecimal, with or without 0x; `(nil)` is 0. Threads and times
//! are not looked at: the lines are in the order in which the allocator did what they say. Streams are
//! numbered as they come up; 0 and 1 (the legacy stream) are the default one. A request that failed
//! has no line of its free: as in RMM's own replay, it is left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;

use super::csv::{LineError, Lines, ReadError};
use super::{TraceError, lines, name_of};
use crate::op::{Answer, Op, Sink, Workload, WorkloadError};

pub(super) const COLUMNS: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// A log in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct RmmLog {
    path: PathBuf,
    name: String,
}

impl RmmLog {
    /// Opens a log and reads its header.
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be read or is no such log.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref().to_owned();
        header(&mut lines(&path)?).map_err(|error| error.in_file(&path))?;
        Ok(Self {
            name: name_of(&path),
            path,
        })
    }
}

impl Workload for RmmLog {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut lines = lines(&self.path)?;
        let sent = header(&mut lines).map_err(ReadError::Line);
        let sent = sent.and_then(|()| events(&mut lines, sink));
        sent.map_err(|error| error.in_file(&self.path))
    }
}

fn header(lines: &mut Lines<impl BufRead>) -> Result<(), LineError> {
    let (line, text) = lines.next()?.unwrap_or((1, ""));
    if text == COLUMNS {
        return Ok(());
    }
    let shown: String = text.chars().take(80).collect();
    let reason = format!("no log of RMM: the columns should be '{COLUMNS}', not '{shown}'");
    Err(LineError::new(line, reason))
}

fn events(lines: &mut Lines<impl BufRead>, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let mut log = Log::default();
    while let Some((line, text)) = lines.next()? {
        if text.is_empty() {
            continue;
        }
        let op = log.op(text);
        if let Some(op) = op.map_err(|reason| LineError::new(line, reason))? {
            sink.op(op).map_err(ReadError::Sink)?;
        }
    }
    Ok(())
}

/// What was seen of a log so far.
#[derive(Default)]
struct Log {
    /// The id of what lives at each pointer.
    live: HashMap<u64, u64, FixedState>,
    /// The number of each stream but the default one.
    streams: HashMap<u64, u32, FixedState>,
    /// Allocations so far.
    count: u64,
}

impl Log {
    /// The operation a line tells, if it tells any.
    fn op(&mut self, text: &str) -> Result<Option<Op<'static>>, String> {
        let count = text.split(',').count();
        let mut fields = text.split(',');
        let fields: [Option<&str>; 7] = std::array::from_fn(|_| fields.next());
        let [
            _,
            _,
            Some(action),
            Some(pointer),
            Some(size),
            Some(stream),
            None,
        ] = fields
        else {
            return Err(format!("{count} fields, not the 6 of '{COLUMNS}'"));
        };
        let pointer = hexadecimal("pointer", pointer)?;
        let bytes: u64 = size
            .parse()
            .map_err(|_| format!("size '{size}' is no number between 0 and 2^64"))?;
        let stream = hexadecimal("stream", stream)?;
        match action {
            "allocate failure" => Ok(None),
            // Of no bytes.
            "allocate" | "free" if pointer == 0 => Ok(None),
            "allocate" => {
                let id = self.count;
                match self.live.entry(pointer) {
                    Entry::Occupied(_) => Err(format!("0x{pointer:x} is live already")),
                    Entry::Vacant(vacant) => {
                        vacant.insert(id);
                        self.count += 1;
                        Ok(Some(Op::Malloc {
                            id,
                            bytes,
                            stream: self.stream(stream),
                            tag: "",
                        }))
                    }
                }
            }
            "free" => match self.live.remove(&pointer) {
                Some(id) => Ok(Some(Op::Free { id })),
                None => Err(format!("free of 0x{pointer:x}, which is not live")),
            },
            other => Err(format!(
                "unknown action '{other}': allocate, free or allocate failure"
            )),
        }
    }

    fn stream(&mut self, handle: u64) -> u32 {
        const LEGACY: u64 = 1;
        if handle <= LEGACY {
            return 0;
        }
        let next = self.streams.len() as u32 + 1;
        *self.streams.entry(handle).or_insert(next)
    }
}

fn hexadecimal(name: &str, text: &str) -> Result<u64, String> {
    if text == "(nil)" {
        return Ok(0);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| format!("{name} '{text}' is no hexadecimal number of 64 bits"))
}

/// Writes the allocations and frees of `workload` and says how many other operations were left out: a
/// log has no word for them.
///
/// Every allocation has a pointer of its own. The thread is 1, the times are microseconds from midnight,
/// one for each line, and the default stream is 0; the handle of another is 256 times its number. (RMM's
/// replay refuses logs with others than 0, 1 and 2.)
///
/// # Errors
/// If the workload cannot be read or the log cannot be written.
pub fn write(workload: &dyn Workload, out: &mut dyn Write) -> Result<u64, WorkloadError> {
    const FIRST: u64 = 0x7f00_0000_0000;
    const ALIGNMENT: u64 = 256;
    const HANDLE: u64 = 256;
    writeln!(out, "{COLUMNS}")?;
    let (mut lines, mut pointers, mut left_out) = (0_u64, 0_u64, 0);
    let mut live: HashMap<u64, (u64, u64, u32), FixedState> = HashMap::default();
    workload.emit(&mut |op: Op<'_>| {
        let (action, (pointer, bytes, stream)) = match op {
            Op::Malloc {
                id, bytes, stream, ..
            } => {
                let pointer = FIRST + ALIGNMENT * pointers;
                pointers += 1;
                live.insert(id, (pointer, bytes, stream));
                ("allocate", (pointer, bytes, stream))
            }
            Op::Free { id } => match live.remove(&id) {
                Some(allocated) => ("free", allocated),
                None => return Ok(Answer::Done),
            },
            Op::Mark { .. } | Op::RecordStream { .. } | Op::EmptyCache | Op::Around(_) => {
                left_out += 1;
                return Ok(Answer::Done);
            }
        };
        let time = time_of_day(lines);
        lines += 1;
        let stream = HANDLE * u64::from(stream);
        writeln!(out, "1,{time},{action},0x{pointer:x},{bytes},{stream:x}")?;
        Ok(Answer::Done)
    })?;
    Ok(left_out)
}

/// `HH:MM:SS.ffffff`.
fn time_of_day(microseconds: u64) -> String {
    let seconds = microseconds / 1_000_000;
    let [hours, minutes] = [seconds / 3600 % 24, seconds / 60 % 60];
    let (seconds, rest) = (seconds % 60, microseconds % 1_000_000);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{rest:06}")
}
