//! Any workload as a trace of ours.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use foldhash::fast::FixedState;
use serde_json::{Map, Value};

use super::csv::COLUMNS;
use crate::op::{Answer, Op, Workload, WorkloadError};

/// Writes all operations of `workload` and says how many were left out, because a trace has no line for
/// them: those that empty the cache, and what happens around the program. An empty header is no line.
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
    let mut live: HashMap<u64, (u64, u32), FixedState> = HashMap::default();
    workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => {
                live.insert(id, (bytes, stream));
                writeln!(out, "alloc,{id},{bytes},{stream},{}", unquoted(tag))?;
            }
            Op::Free { id } => {
                if let Some((bytes, stream)) = live.remove(&id) {
                    writeln!(out, "free,{id},{bytes},{stream},")?;
                }
            }
            Op::RecordStream { id, stream } => {
                writeln!(out, "mark,{id},0,{stream},record_stream")?;
            }
            Op::Mark { tag } => writeln!(out, "mark,-1,0,0,{}", unquoted(tag))?,
            Op::EmptyCache | Op::Around(_) => left_out += 1,
        }
        Ok(Answer::Done)
    })?;
    Ok(left_out)
}

/// The tag without what would end the field: there is no quoting.
fn unquoted(tag: &str) -> Cow<'_, str> {
    if tag.contains([',', '\n', '\r']) {
        tag.replace(',', ";").replace(['\n', '\r'], " ").into()
    } else {
        tag.into()
    }
}
