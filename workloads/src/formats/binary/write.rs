//! Writes binary traces.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::json;
use coalesce_alloc::{MempoolId, PoolCall};
use foldhash::fast::FixedState;
use serde_json::{Map, Value};

use super::slots::Slots;
use super::{
    LONGEST_TEXT, MAGIC, MOST_TAGS, OF_SEVERAL, VERSION, change, kind, limit, malloc, pool, signed,
    start,
};
use crate::course::FAILED;
use crate::formats::sections::{Device, header_of};
use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::surroundings::Change;

/// Writes the operations of `workload` as a binary trace, with what the workload knows of its recording. Operations on
/// allocations that are not live are left out, and so is an empty header.
///
/// # Errors
/// If the workload cannot be read or uses an id twice, or the trace cannot be written.
pub fn write(
    workload: &dyn Workload,
    header: &Map<String, Value>,
    out: &mut dyn Write,
) -> Result<(), WorkloadError> {
    write_devices(&[(0, workload)], header, out)
}

/// As [`write()`], for several devices: a section for each, in this order. The number of a single one is not written.
///
/// # Errors
/// As [`write()`].
pub fn write_devices(
    devices: &[Device<'_>],
    header: &Map<String, Value>,
    out: &mut dyn Write,
) -> Result<(), WorkloadError> {
    let header = header_of(devices, header);
    let json = if header.is_empty() {
        String::new()
    } else {
        json::line(&header).map_err(io::Error::from)?
    };
    let mut head = Writer::new();
    head.event.extend(MAGIC);
    head.event.push(match devices {
        [_] => VERSION,
        _ => OF_SEVERAL,
    });
    head.text(&json).map_err(io::Error::other)?;
    head.flush(out)?;
    for (_, workload) in devices {
        write_section(*workload, out)?;
    }
    Ok(())
}

fn write_section(workload: &dyn Workload, out: &mut dyn Write) -> Result<(), WorkloadError> {
    let is_recorded = workload.recorded_failures().is_some();
    let mut writer = Writer::new();
    for number in start::numbers(workload.start().map(AsRef::as_ref)) {
        writer.number(number);
    }
    writer.flush(out)?;
    workload.emit(&mut |op: Op<'_>| {
        if let Op::Malloc {
            id,
            bytes,
            stream,
            tag,
        } = op
            && is_recorded
            && tag.starts_with(FAILED)
        {
            let request = Request { id, bytes, stream };
            writer
                .malloc(&request, tag, malloc::FAILED)
                .map_err(io::Error::other)?;
            writer.events += 1;
            writer.flush(out)?;
            return Ok(Answer::OutOfMemory);
        }
        if writer.op(op).map_err(io::Error::other)? {
            writer.events += 1;
        }
        writer.flush(out)?;
        Ok(Answer::Done)
    })?;
    writer.event.push(kind::END);
    writer.number(writer.events);
    writer.flush(out)?;
    Ok(())
}

/// A malloc without its tag.
struct Request {
    id: u64,
    bytes: u64,
    stream: u32,
}

#[derive(Default)]
struct Writer {
    /// The bytes of the current event.
    event: Vec<u8>,
    slots: Slots,
    slot_of: HashMap<u64, u64, FixedState>,
    /// The id and the stream of the last malloc.
    id: u64,
    stream: u32,
    /// The places of the tags.
    tags: HashMap<Box<str>, u64, FixedState>,
    events: u64,
}

impl Writer {
    fn new() -> Self {
        Self {
            id: u64::MAX,
            ..Self::default()
        }
    }

    fn flush(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.event)?;
        self.event.clear();
        Ok(())
    }

    /// Writes an operation, unless it concerns an allocation that is not live.
    fn op(&mut self, op: Op<'_>) -> Result<bool, String> {
        match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => {
                self.malloc(&Request { id, bytes, stream }, tag, 0)?;
                let slot = self.slots.take(id)?;
                self.slot_of.insert(id, slot as u64);
            }
            Op::Free { id } => {
                let Some(slot) = self.slot_of.remove(&id) else {
                    return Ok(false);
                };
                self.slots.release(slot)?;
                self.event.push(kind::FREE);
                self.number(slot);
            }
            Op::RecordStream { id, stream } => {
                let Some(&slot) = self.slot_of.get(&id) else {
                    return Ok(false);
                };
                self.event.push(kind::RECORD_STREAM);
                self.number(slot);
                self.number(stream.into());
            }
            Op::EmptyCache => self.event.push(kind::EMPTY_CACHE),
            Op::Pool(call) => self.pool_call(call),
            Op::Limit { bytes: Some(bytes) } => {
                self.event.push(kind::SURROUNDINGS | limit::SET);
                self.number(bytes);
            }
            Op::Limit { bytes: None } => self.event.push(kind::SURROUNDINGS | limit::NONE),
            Op::Surroundings(change) => self.change(change),
            Op::Mark { tag } => {
                self.event.push(kind::MARK);
                self.text(tag)?;
            }
        }
        Ok(true)
    }

    fn malloc(&mut self, request: &Request, tag: &str, flags: u8) -> Result<(), String> {
        let &Request { id, bytes, stream } = request;
        let delta = id.wrapping_sub(self.id.wrapping_add(1));
        let mut head = kind::MALLOC | flags;
        if delta != 0 {
            head |= malloc::HAS_DELTA;
        }
        if stream != self.stream {
            head |= malloc::HAS_STREAM;
        }
        self.event.push(head);
        if delta != 0 {
            self.number(signed(delta));
        }
        self.number(bytes);
        if stream != self.stream {
            self.number(stream.into());
        }
        (self.id, self.stream) = (id, stream);
        self.tag(tag)
    }

    fn tag(&mut self, tag: &str) -> Result<(), String> {
        if let Some(&place) = self.tags.get(tag) {
            self.number(place);
            return Ok(());
        }
        self.event.push(0);
        if self.tags.len() < MOST_TAGS {
            self.tags.insert(tag.into(), self.tags.len() as u64 + 1);
        }
        self.text(tag)
    }

    fn pool_call(&mut self, call: PoolCall) {
        let (flags, pool) = match call {
            PoolCall::Begin(pool) => (pool::BEGIN, Some(pool)),
            PoolCall::End(pool) => (pool::END, Some(pool)),
            PoolCall::Release(pool) => (pool::RELEASE, Some(pool)),
            PoolCall::Empty(pool) => (pool::EMPTY, Some(pool)),
            PoolCall::BeginCapture => (pool::BEGIN_CAPTURE, None),
            PoolCall::EndCapture => (pool::END_CAPTURE, None),
        };
        self.event.push(kind::POOL | flags);
        if let Some(MempoolId(graph, user)) = pool {
            self.number(graph);
            self.number(user);
        }
    }

    fn change(&mut self, change: Change) {
        let flags = match change {
            Change::Foreign { .. } => change::FOREIGN,
            Change::HoldEvents(false) => change::RELEASE,
            Change::HoldEvents(true) => change::HOLD,
            Change::FinishEvents { .. } => change::FINISH,
        };
        self.event.push(kind::SURROUNDINGS | flags);
        match change {
            Change::Foreign { bytes } => self.number(bytes),
            Change::HoldEvents(_) => {}
            Change::FinishEvents { stream, count } => {
                self.number(stream.into());
                self.number(count);
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        let length = text.len() as u64;
        if length > LONGEST_TEXT {
            return Err(format!(
                "a text of {length} bytes is too long for a binary trace, which has at most {LONGEST_TEXT}"
            ));
        }
        self.number(length);
        self.event.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.event.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.event.push(number as u8);
    }
}
