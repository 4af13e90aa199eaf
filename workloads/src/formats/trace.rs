//! Recorded traces: what a real program asked of its allocator, one event a line.
//!
//! ```text
//! # {"model": "gpt2-small", "batch": 8, …}      a JSON object, or no such line
//! op,id,bytes,stream,tag
//! alloc,ID,BYTES,STREAM,OPERATOR                  no two live allocations have one id
//! free,ID,BYTES,STREAM,                           bytes and stream are those of the alloc
//! mark,ID,0,STREAM,record_stream                  the allocation is also used on that stream
//! mark,-1,0,0,PHASE
//! ```
//!
//! Plain or compressed with gzip. A trace is read as it is replayed, never as a whole; only the ids
//! that are live are kept, to find mistakes.

mod csv;
pub mod rmm;
mod write;

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::csv::Lines;
use self::rmm::RmmLog;
use crate::formats::minimalloc::{self, InstanceFile};
use crate::formats::packed;
use crate::op::{Sink, Workload, WorkloadError};

pub use self::write::write;

/// A trace in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceFile {
    path: PathBuf,
    name: String,
    header: Map<String, Value>,
}

impl TraceFile {
    /// Opens a trace and reads its header.
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be read or is no trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref().to_owned();
        let header = lines(&path)?
            .header()
            .map_err(|error| error.in_file(&path))?;
        Ok(Self {
            name: name_of(&path),
            path,
            header,
        })
    }

    /// What the recorder said of the trace.
    #[must_use]
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }
}

impl Workload for TraceFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut lines = lines(&self.path)?;
        let sent = lines.header().map_err(Into::into);
        let sent = sent.and_then(|_| lines.events(sink));
        sent.map_err(|error| error.in_file(&self.path))
    }
}

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub struct TraceError {
    file: PathBuf,
    line: Option<u64>,
    reason: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl TraceError {
    /// What is wrong with a file, and in which line if it is in one.
    pub(crate) fn new(file: &Path, line: Option<u64>, reason: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            reason: reason.into(),
        }
    }
}

/// The workload in a file of text: a trace of ours, a log of RMM or an instance of MiniMalloc. Its first
/// line says which.
///
/// # Errors
/// [`TraceError`] if the file cannot be read or is none of them.
pub fn open(path: impl AsRef<Path>) -> Result<Box<dyn Workload>, TraceError> {
    let path = path.as_ref();
    let mut lines = lines(path)?;
    // What is no text is told by whoever expects some.
    let header = lines.next().ok().flatten();
    Ok(match header.map_or("", |(_, header)| header) {
        rmm::COLUMNS => Box::new(RmmLog::open(path)?),
        header if minimalloc::is_header(header) => Box::new(InstanceFile::open(path)?),
        _ => Box::new(TraceFile::open(path)?),
    })
}

/// A file of text, line by line.
fn lines(path: &Path) -> Result<Lines<Box<dyn BufRead>>, TraceError> {
    let source = packed::open(path);
    let source = source.map_err(|error| TraceError::new(path, None, error.to_string()))?;
    Ok(Lines::new(source))
}

/// What a file is called without its endings: `gpt2.csv.gz`, `gpt2.csv` and `gpt2.log` are all `gpt2`.
#[must_use]
pub fn name_of(path: &Path) -> String {
    const ENDINGS: [&str; 3] = [".csv", ".log", ".txt"];
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let plain = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    plain.unwrap_or(name).to_owned()
}
