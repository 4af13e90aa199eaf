//! Logs of RMM's `logging_resource_adaptor`, as its replay benchmark reads them.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 4711,09:31:07.123456,allocate,0x7f3c00000000,1024,0      or `free`, `deallocate`, or `allocate failure`
//! ```
//!
//! Source: logging_resource_adaptor_impl.cpp and benchmarks/utilities/log_parser.hpp of rapidsai/rmm
//! (2026), which write `free`; RMM's guide of its log has `deallocate`. Pointers and streams are hexadecimal, with or without 0x; `(nil)` is 0. Threads and times are
//! ignored, because the lines are in the order of the allocator's operations. Streams are numbered in the
//! order of their first use; 0 and 1 (the legacy stream) are the default stream. A failed request has no
//! matching free; it is skipped, as in RMM's own replay.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;

use coalesce_alloc::printable::printable;
use foldhash::fast::FixedState;

use super::file::{FileError, InputFile, Lines};
use super::source::{Origin, Source};
use super::stem;
use crate::budget::{self, Budget};
use crate::op::{Answer, Op, Sink, Workload, WorkloadError};

pub(super) const COLUMNS: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// A log in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct RmmLog {
    origin: Origin,
    name: String,
    budget: Budget,
}

impl RmmLog {
    /// Opens a log and reads its header.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or is not such a log.
    pub fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        Self::new(InputFile::open(source)?)
    }

    pub(super) fn new(file: InputFile) -> Result<Self, FileError> {
        let origin = file.origin().clone();
        let budget = file.budget();
        read_header(&mut file.lines())?;
        Ok(Self {
            name: stem(origin.path()),
            budget,
            origin,
        })
    }
}

impl Workload for RmmLog {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut lines = InputFile::of(self.origin.clone())?.lines();
        read_header(&mut lines)?;
        let mut log = Log::default();
        while let Some(line) = lines.next()? {
            if line.text.is_empty() {
                continue;
            }
            let op = log.op(line.text).map_err(|reason| line.error(reason))?;
            if let Some(op) = op {
                sink.op(op)?;
            }
        }
        Ok(())
    }

    fn budget(&self) -> Budget {
        self.budget
    }
}

fn read_header(lines: &mut Lines) -> Result<(), FileError> {
    let line = lines.next_or_empty()?;
    if line.text == COLUMNS {
        return Ok(());
    }
    let shown = line.excerpt();
    Err(line.error(format!(
        "not an RMM log: expected the columns '{COLUMNS}', found '{shown}'"
    )))
}

/// The state after the lines that were read.
#[derive(Default)]
struct Log {
    /// The id of the allocation at each pointer.
    live: HashMap<u64, u64, FixedState>,
    /// The number of each stream, except the default stream.
    streams: HashMap<u64, u32, FixedState>,
    /// Allocations so far.
    count: u64,
}

impl Log {
    /// The operation in a line; none for a line to skip.
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
            return Err(format!("{count} fields instead of the 6 of '{COLUMNS}'"));
        };
        let pointer = hexadecimal("pointer", pointer)?;
        let bytes: u64 = size.parse().map_err(|_| {
            format!(
                "size '{size}' is not a number from 0 to 2^64 - 1",
                size = printable(size)
            )
        })?;
        let stream = hexadecimal("stream", stream)?;
        match action {
            "allocate failure" => Ok(None),
            // An allocation of 0 bytes.
            "allocate" | "free" | "deallocate" if pointer == 0 => Ok(None),
            "allocate" => {
                let id = self.count;
                match self.live.entry(pointer) {
                    Entry::Occupied(_) => Err(format!("0x{pointer:x} is already live")),
                    Entry::Vacant(vacant) => {
                        vacant.insert(id);
                        self.count += 1;
                        budget::check_live(self.live.len())?;
                        Ok(Some(Op::Malloc {
                            id,
                            bytes,
                            stream: self.stream(stream)?,
                            tag: "",
                        }))
                    }
                }
            }
            "free" | "deallocate" => match self.live.remove(&pointer) {
                Some(id) => Ok(Some(Op::Free { id })),
                None => Err(format!("free of 0x{pointer:x}, which is not live")),
            },
            other => Err(format!(
                "unknown action '{other}'; expected one of: allocate, free, deallocate, allocate failure",
                other = printable(other)
            )),
        }
    }

    fn stream(&mut self, handle: u64) -> Result<u32, String> {
        const LEGACY: u64 = 1;
        if handle <= LEGACY {
            return Ok(0);
        }
        let next = self.streams.len() as u32 + 1;
        let stream = *self.streams.entry(handle).or_insert(next);
        budget::check_streams(self.streams.len())?;
        Ok(stream)
    }
}

fn hexadecimal(name: &str, text: &str) -> Result<u64, String> {
    if text == "(nil)" {
        return Ok(0);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| {
        format!(
            "{name} '{text}' is not a hexadecimal number of 64 bits",
            text = printable(text)
        )
    })
}

/// Writes the allocations and frees of `workload` as a log. Returns how many other operations were left
/// out because a log cannot express them.
///
/// Every allocation has a different pointer. The thread is 1. The time advances by a microsecond per line
/// from midnight. The handle of a stream is 256 times its number. (RMM's replay accepts only the handles 0,
/// 1 and 2.)
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
            Op::Mark { .. }
            | Op::RecordStream { .. }
            | Op::EmptyCache
            | Op::Pool(_)
            | Op::Limit { .. }
            | Op::Surroundings(_) => {
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

#[cfg(test)]
mod tests {
    use super::time_of_day;

    #[test]
    fn a_day_has_24_hours() {
        assert_eq!(time_of_day(59_000_007), "00:00:59.000007");
        assert_eq!(time_of_day(60_000_000), "00:01:00.000000");
        assert_eq!(time_of_day(3_599_999_999), "00:59:59.999999");
        assert_eq!(time_of_day(3_600_000_000), "01:00:00.000000");
        assert_eq!(time_of_day(24 * 3_600_000_000 + 123), "00:00:00.000123");
    }
}
