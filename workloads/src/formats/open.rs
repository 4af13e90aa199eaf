//! Recognises and opens input files.

use std::fs;
use std::path::Path;

use super::binary;
use super::file::{FileError, InputFile};
use super::minimalloc::{self, InstanceFile};
use super::nearest::{header, unknown};
use super::profile::{self, Profile};
use super::rmm::{self, RmmLog};
use super::snapshot::{self, Recording};
use super::source::{Origin, Source};
use super::trace::TraceFile;
use crate::op::Workload;

/// The content of an input file.
pub enum FileContent {
    /// A memory snapshot: one recording per device.
    Snapshot(Vec<Recording>),
    /// A trace of one device, an RMM log or a MiniMalloc instance.
    Workload(Box<dyn Workload>),
    /// A trace of several devices.
    Devices(DeviceSections),
    /// What a profiler recorded, which cannot be replayed.
    Profile(Profile),
}

/// A trace of several devices.
pub struct DeviceSections {
    origin: Origin,
    devices: Vec<u32>,
}

impl DeviceSections {
    /// The numbers of the devices, in the order of their sections.
    #[must_use]
    pub fn devices(&self) -> &[u32] {
        &self.devices
    }

    /// The operations on the device with this index.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read up to them.
    pub fn open(&self, index: usize) -> Result<Box<dyn Workload>, FileError> {
        let file = InputFile::of(self.origin.clone())?;
        Ok(Box::new(open_section(file, index)?))
    }
}

/// Opens a section of a trace in either form, or the whole if it has none.
fn open_section(file: InputFile, section: usize) -> Result<TraceFile, FileError> {
    if file.start().starts_with(&binary::MAGIC) {
        binary::of_section(file, section)
    } else {
        TraceFile::of_section(file, section)
    }
}

/// Opens an input of any format, plain or compressed with gzip, xz or zstd, or alone in a zip archive. The first bytes decide
/// what it is.
///
/// # Errors
/// [`FileError`] if the file cannot be read, or is of no format that is read.
pub fn open(source: impl Into<Source>) -> Result<FileContent, FileError> {
    let file = InputFile::open(source)?;
    if profile::is_profile(file.start()) {
        return Ok(FileContent::Profile(profile::read_file(file)?));
    }
    if snapshot::read::is_snapshot(file.start()) {
        return Ok(FileContent::Snapshot(snapshot::read::read_file(file)?));
    }
    Ok(FileContent::Workload(match header(file.start()) {
        rmm::COLUMNS => Box::new(RmmLog::new(file)?),
        header if minimalloc::is_header(header) => Box::new(InstanceFile::new(file)?),
        _ => {
            if !may_be_trace(file.start()) {
                return Err(FileError::new(file.path(), unknown(file.start())));
            }
            let trace = open_section(file, 0)?;
            if !trace.devices.is_empty() {
                let TraceFile {
                    origin, devices, ..
                } = trace;
                return Ok(FileContent::Devices(DeviceSections { origin, devices }));
            }
            Box::new(trace)
        }
    }))
}

/// Whether a file is of a format that is read, or may be, because it is damaged or cannot be opened.
#[must_use]
pub fn may_be_read(path: &Path) -> bool {
    match InputFile::open(path) {
        Ok(file) => {
            let start = file.start();
            let is_known = profile::is_profile(start) || snapshot::read::is_snapshot(start);
            is_known || is_table(header(start)) || may_be_trace(start)
        }
        Err(error) => !error.is_of_content() || fs::metadata(path).is_ok_and(|it| it.len() == 0),
    }
}

/// Whether a header is that of an RMM log or a MiniMalloc instance.
fn is_table(header: &str) -> bool {
    header == rmm::COLUMNS || minimalloc::is_header(header)
}

/// Whether an unpacked file with this start may be a trace, as text or in binary form. One that cannot be read from its
/// first byte on may be.
fn may_be_trace(start: &[u8]) -> bool {
    let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start);
    if start.is_empty() || start.starts_with(&binary::MAGIC) || text.starts_with(b"op,") {
        return true;
    }
    let header = text.strip_prefix(b"#").map(<[u8]>::trim_ascii_start);
    header.is_some_and(|header| header.starts_with(b"{"))
}
