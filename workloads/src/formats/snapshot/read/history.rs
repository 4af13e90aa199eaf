//! Histories without stacks, as published for programs whose source is confidential: the entries of one
//! device as CSV, and the segments after the last entry in a second file.
//!
//! ```text
//! NAME.csv                     action,addr,size,stream,time_us
//!                              alloc,140373280522240,4096,0,1749082042531812
//! NAME.final_segments.json     [{"address": …, "stream": 0, "segment_type": "small", "pool_id": [0, 0],
//!                                "is_expandable": false, "blocks": [[SIZE, REQUESTED, STATE, ADDRESS], …]}]
//! ```
//!
//! Both files may be compressed in the same way, with `.gz`, `.xz` or `.zst` appended to their names.

use std::path::{Path, PathBuf};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::printable::printable;
use coalesce_alloc::release::v2;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use serde::Deserialize;

use super::Recording;
use crate::formats::compression::unpacked_name;
use crate::formats::file::{FileError, InputFile};
use crate::formats::snapshot::release::Releases;

/// The first line.
const HEADER: &str = "action,addr,size,stream,time_us";
/// More bytes than any such file has.
const LARGEST: u64 = 1 << 32;

/// Whether a file with this start is a history.
pub(super) fn is_history(start: &[u8]) -> bool {
    start.starts_with(HEADER.as_bytes())
}

/// Bytes of memory for a line, with what is made of its entry.
const PER_LINE: u64 = 128;

/// Reads the recording of the history in a file of at most `largest` bytes.
pub(super) fn read(path: &Path, file: InputFile, largest: u64) -> Result<Recording, FileError> {
    let budget = file.budget();
    let bytes = file.read_all(largest)?;
    let text = str::from_utf8(&bytes).map_err(|error| FileError::new(path, error))?;
    let lines = (1..).zip(text.lines()).skip(1);
    let mut kept = bytes.len() as u64;
    let entries = lines.map(|(line, text)| {
        kept += PER_LINE;
        let checked = budget.check(kept);
        checked.map_err(|reason| FileError::in_line(path, line, reason))?;
        let reason = || format!("'{text}' is not {HEADER}", text = printable(text));
        entry(text).ok_or_else(|| FileError::in_line(path, line, reason()))
    });
    Ok(Recording {
        entries: entries.collect::<Result<_, _>>()?,
        segments: segments(&segments_path(path))?,
        remarks: vec!["Neither settings nor stacks were recorded.".to_owned()],
        // The first release that records times.
        written_by: Releases::since(v2(2)),
        ..Recording::default()
    })
}

fn entry(line: &str) -> Option<TraceEntry> {
    let mut fields = line.split(',');
    let action = Action::named(fields.next()?)?;
    let mut number = || fields.next()?.parse::<u64>().ok();
    let entry = TraceEntry {
        action,
        addr: DeviceAddr(number()?),
        size: number()?,
        stream: StreamId(number()?),
        time_us: number()?,
    };
    fields.next().is_none().then_some(entry)
}

/// `NAME.final_segments.json.gz` of `NAME.csv.gz`.
fn segments_path(path: &Path) -> PathBuf {
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    let plain = unpacked_name(&name);
    let ending = &name[plain.len()..];
    let plain = plain.strip_suffix(".csv").unwrap_or(plain);
    path.with_file_name(format!("{plain}.final_segments.json{ending}"))
}

#[derive(Deserialize)]
struct Segment {
    address: u64,
    stream: u64,
    segment_type: String,
    pool_id: (u64, u64),
    is_expandable: bool,
    blocks: Vec<(u64, u64, String, u64)>,
}

fn segments(path: &Path) -> Result<Vec<SegmentInfo>, FileError> {
    let file = InputFile::open(path)
        .map_err(|error| error.with_hint("this file must contain the segments at the end"))?;
    let segments: Vec<Segment> = serde_json::from_slice(&file.read_all(LARGEST)?)
        .map_err(|error| FileError::new(path, error))?;
    let segments = segments.into_iter().map(Segment::info);
    segments
        .collect::<Result<_, String>>()
        .map_err(|reason| FileError::new(path, reason))
}

impl Segment {
    fn info(self) -> Result<SegmentInfo, String> {
        let blocks = self
            .blocks
            .into_iter()
            .map(|(size, requested, state, address)| {
                let known = BlockState::named(&state);
                let state = known.ok_or_else(|| {
                    format!(
                        "unknown state of a block: '{state}'",
                        state = printable(state)
                    )
                })?;
                let address = DeviceAddr(address);
                Ok::<_, String>(BlockInfo::new(address, size, requested, state))
            });
        Ok(SegmentInfo {
            device: 0,
            address: DeviceAddr(self.address),
            stream: StreamId(self.stream),
            kind: PoolKind::named(&self.segment_type).ok_or_else(|| {
                format!("unknown segment_type: '{}'", printable(self.segment_type))
            })?,
            pool: MempoolId(self.pool_id.0, self.pool_id.1),
            is_expandable: self.is_expandable,
            blocks: blocks.collect::<Result<_, _>>()?,
        })
    }
}
