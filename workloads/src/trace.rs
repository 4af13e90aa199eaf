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

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::csv::Lines;
use crate::op::{Sink, Workload, WorkloadError};
use crate::packed;

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
        let header = open(&path)?
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
        let mut lines = open(&self.path)?;
        let sent = lines.header().map_err(Into::into);
        let sent = sent.and_then(|_| lines.events(sink));
        sent.map_err(|error| match error {
            csv::ReadError::Line(error) => error.in_file(&self.path).into(),
            csv::ReadError::Sink(error) => error,
        })
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

fn open(path: &Path) -> Result<Lines<Box<dyn BufRead>>, TraceError> {
    let source = packed::open(path).map_err(|error| TraceError {
        file: path.to_owned(),
        line: None,
        reason: error.to_string(),
    })?;
    Ok(Lines::new(source))
}

/// `gpt2.csv.gz` and `gpt2.csv` are both called `gpt2`.
#[must_use]
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.strip_suffix(".csv").unwrap_or(name).to_owned()
}
