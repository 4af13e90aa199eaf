//! The lines of a trace before its events: the segments that are reserved then, and their blocks.

use std::io::{self, Write};

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use super::event::{number, pool_id, wrong};
use crate::start::StartState;
use crate::start::parts::Part;

/// Whether a line is about a segment or a block of the start.
pub(super) fn is_of_start(text: &str) -> bool {
    text.starts_with("segment,") || text.starts_with("block,")
}

/// The segments so far.
#[derive(Default)]
pub(super) struct StartLines(pub(super) Vec<Part>);

impl StartLines {
    /// Reads the line of a segment or a block.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        let fields: Vec<&str> = text.split(',').collect();
        let [op, first, bytes, stream, tag] = fields[..] else {
            return Err(format!("{} fields instead of 5", fields.len()));
        };
        let bytes = number("bytes", bytes)?;
        let stream = StreamId::nth(number("stream", stream)?);
        if op == "segment" {
            let address = DeviceAddr(number("address", first)?);
            let (segment, offset) = (segment(tag, address, stream)?, bytes);
            self.0.push(Part::new(segment, offset));
            return Ok(());
        }
        let id = match first {
            "-1" => None,
            id => Some(number("id", id)?),
        };
        let part = self
            .0
            .last_mut()
            .ok_or("a block before the first segment")?;
        if part.segment.stream != stream {
            return Err("the stream of a block is that of its segment".to_owned());
        }
        part.push(id, bytes, number("requested", tag)?)
    }
}

/// The segment with this tag, without blocks.
fn segment(tag: &str, address: DeviceAddr, stream: StreamId) -> Result<SegmentInfo, String> {
    let such = "one such as 'large 0:0' or 'small 0:0 expandable'";
    let unknown = || wrong("segment", tag, such);
    let (plain, is_expandable) = match tag.strip_suffix(" expandable") {
        Some(plain) => (plain, true),
        None => (tag, false),
    };
    let (kind, pool) = plain.split_once(' ').ok_or_else(unknown)?;
    Ok(SegmentInfo {
        device: 0,
        address,
        stream,
        kind: match kind {
            "small" => PoolKind::Small,
            "large" => PoolKind::Large,
            _ => return Err(unknown()),
        },
        pool: pool_id(pool).ok_or_else(unknown)?,
        is_expandable,
        blocks: Vec::new(),
    })
}

/// Writes the segments of a start state.
pub(super) fn write(start: &StartState, out: &mut dyn Write) -> io::Result<()> {
    for Part {
        segment,
        offset,
        ids,
    } in start.parts()
    {
        let (address, stream) = (segment.address.0, segment.stream.index());
        let kind = match segment.kind {
            PoolKind::Small => "small",
            PoolKind::Large => "large",
        };
        let pool = segment.pool;
        let expandable = if segment.is_expandable {
            " expandable"
        } else {
            ""
        };
        writeln!(
            out,
            "segment,{address},{offset},{stream},{kind} {}:{}{expandable}",
            pool.0, pool.1
        )?;
        for (block, id) in segment.blocks.iter().zip(ids) {
            let id = id.map_or("-1".to_owned(), |id| id.to_string());
            let requested = block.requested_size;
            writeln!(out, "block,{id},{},{stream},{requested}", block.size)?;
        }
    }
    Ok(())
}
