//! Writes traces.

use std::borrow::Cow;
use std::io::Write;

use crate::json;
use coalesce_alloc::PoolCall;
use coalesce_alloc::printable::cell;
use serde_json::{Map, Value};

use super::{COLUMNS, start};
use crate::course::FAILED;
use crate::formats::sections::{Device, header_of};
use crate::live::LiveTable;
use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::surroundings::Change;

/// Writes the operations of `workload` as a trace, with what the workload knows of its recording. Operations on allocations
/// that are not live are left out, and so is an empty header.
///
/// # Errors
/// If the workload cannot be read or the trace cannot be written.
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
    if !header.is_empty() {
        let json = json::line(&header).map_err(std::io::Error::from)?;
        writeln!(out, "# {json}")?;
    }
    writeln!(out, "{COLUMNS}")?;
    for &(number, workload) in devices {
        if devices.len() > 1 {
            writeln!(out, "device,-1,0,0,{number}")?;
        }
        write_section(workload, out)?;
    }
    Ok(())
}

fn write_section(workload: &dyn Workload, out: &mut dyn Write) -> Result<(), WorkloadError> {
    if let Some(start) = workload.start() {
        start::write(start, out)?;
    }
    let is_recorded = workload.recorded_failures().is_some();
    let mut live = LiveTable::default();
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => {
                let failed = is_recorded && tag.starts_with(FAILED);
                let name = if failed { "fail" } else { "alloc" };
                writeln!(out, "{name},{id},{bytes},{stream},{}", one_field(tag))?;
                if failed {
                    return Ok(Answer::OutOfMemory);
                }
                live.insert(id, (bytes, stream));
            }
            Op::Free { id } => {
                if let Some((bytes, stream)) = live.remove(id) {
                    writeln!(out, "free,{id},{bytes},{stream},")?;
                }
            }
            Op::RecordStream { id, stream } => {
                if live.get(id).is_some() {
                    writeln!(out, "mark,{id},0,{stream},record_stream")?;
                }
            }
            Op::Mark { tag } => writeln!(out, "mark,-1,0,0,{}", one_field(tag))?,
            Op::EmptyCache => writeln!(out, "empty_cache,-1,0,0,")?,
            Op::Pool(call) => writeln!(out, "{}", line_of_call(call))?,
            Op::Limit { bytes: Some(bytes) } => writeln!(out, "limit,-1,{bytes},0,")?,
            Op::Limit { bytes: None } => writeln!(out, "limit,-1,0,0,none")?,
            Op::Surroundings(change) => writeln!(out, "{}", line_of_change(change))?,
        }
        Ok(Answer::Done)
    })
}

fn line_of_call(call: PoolCall) -> String {
    let (name, pool) = match call {
        PoolCall::Begin(pool) => ("begin", pool),
        PoolCall::End(pool) => ("end", pool),
        PoolCall::Release(pool) => ("release", pool),
        PoolCall::Empty(pool) => ("empty", pool),
        PoolCall::BeginCapture => return "capture,-1,0,0,begin".to_owned(),
        PoolCall::EndCapture => return "capture,-1,0,0,end".to_owned(),
    };
    format!("pool,-1,0,0,{name} {}:{}", pool.0, pool.1)
}

fn line_of_change(change: Change) -> String {
    match change {
        Change::Foreign { bytes } => format!("others,-1,{bytes},0,"),
        Change::HoldEvents(true) => "events,-1,0,0,hold".to_owned(),
        Change::HoldEvents(false) => "events,-1,0,0,at_once".to_owned(),
        Change::FinishEvents { stream, count } => format!("events,-1,{count},{stream},finish"),
    }
}

/// The tag as one field of one line.
fn one_field(tag: &str) -> Cow<'_, str> {
    if tag.contains(',') {
        cell(&tag.replace(',', ";")).into_owned().into()
    } else {
        cell(tag)
    }
}
