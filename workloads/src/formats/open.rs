//! Recognises and opens input files.

use super::binary::{self, BinaryTrace};
use super::file::{FileError, InputFile};
use super::minimalloc::{self, InstanceFile};
use super::rmm::{self, RmmLog};
use super::snapshot::{self, Recording};
use super::source::Source;
use super::trace::TraceFile;
use crate::op::Workload;

/// The content of an input file.
pub enum Opened {
    /// A memory snapshot: one recording per device.
    Snapshot(Vec<Recording>),
    /// A trace, an RMM log or a MiniMalloc instance.
    Workload(Box<dyn Workload>),
}

/// Opens an input of any format, plain or compressed with gzip, xz or zstd. The first bytes decide what it is; a
/// text of an unknown format is read as a trace, whose errors say what a trace looks like.
///
/// # Errors
/// [`FileError`] if the file cannot be read.
pub fn open(source: impl Into<Source>) -> Result<Opened, FileError> {
    let file = InputFile::open(source)?;
    if snapshot::read::is_snapshot(file.start()) {
        return Ok(Opened::Snapshot(snapshot::read::read_file(file)?));
    }
    if file.start().starts_with(&binary::MAGIC) {
        return Ok(Opened::Workload(Box::new(BinaryTrace::new(file)?)));
    }
    let first_line = file.start().split(|&byte| byte == b'\n').next();
    let text = str::from_utf8(first_line.unwrap_or_default()).unwrap_or_default();
    Ok(Opened::Workload(match text.trim_end_matches('\r') {
        rmm::COLUMNS => Box::new(RmmLog::new(file)?),
        header if minimalloc::is_header(header) => Box::new(InstanceFile::new(file)?),
        _ => Box::new(TraceFile::new(file)?),
    }))
}
