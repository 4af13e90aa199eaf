//! Input files: opened once, decompressed if they are compressed with gzip, read by lines or as a whole.
//! The content of a file decides what it is, not its name.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::foreign;
use crate::op::WorkloadError;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes of the longest line that is read.
const LONGEST_LINE: u64 = 1 << 20;

/// A file that cannot be read, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct FileError {
    file: PathBuf,
    position: Position,
    reason: String,
}

/// The place of an error in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    Unknown,
    /// Counted from 1.
    Line(u64),
    /// In the decompressed file, counted from 0.
    Byte(u64),
}

impl FileError {
    pub(super) fn new(file: &Path, reason: impl ToString) -> Self {
        Self {
            file: file.to_owned(),
            position: Position::Unknown,
            reason: reason.to_string(),
        }
    }

    pub(super) fn in_line(file: &Path, line: u64, reason: impl ToString) -> Self {
        Self {
            position: Position::Line(line),
            ..Self::new(file, reason)
        }
    }

    pub(super) fn at_byte(file: &Path, byte: u64, reason: impl ToString) -> Self {
        Self {
            position: Position::Byte(byte),
            ..Self::new(file, reason)
        }
    }

    /// The same error with a hint behind the reason.
    pub(super) fn with_hint(self, hint: &str) -> Self {
        let reason = format!("{}; {hint}", self.reason);
        Self { reason, ..self }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Position::Unknown => {}
            Position::Line(line) => write!(f, ", line {line}")?,
            Position::Byte(byte) => write!(f, ", byte {byte}")?,
        }
        write!(f, ": {}", self.reason)
    }
}

impl From<FileError> for WorkloadError {
    fn from(error: FileError) -> Self {
        Self::Source(Box::new(error))
    }
}

/// An open file.
pub(super) struct InputFile {
    path: PathBuf,
    /// The first bytes of the decompressed content.
    start: Vec<u8>,
    /// The decompressed content that has not been read.
    content: Box<dyn BufRead>,
    /// Bytes on disk.
    size: u64,
}

impl InputFile {
    /// Opens a file. Files of formats that no reader knows cause an error that names the format.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        /// More bytes than any header line has.
        const START: u64 = 1 << 16;
        let open = || {
            let size = size_of_file(path)?;
            let mut file = BufReader::new(File::open(path)?);
            let mut content: Box<dyn BufRead> = if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
                Box::new(BufReader::new(Unpacked {
                    gzip: MultiGzDecoder::new(file),
                    bytes: 0,
                }))
            } else {
                Box::new(file)
            };
            let mut start = Vec::new();
            // An error is kept for the reader that knows what the content is, and so where the error is.
            if let Err(error) = content.by_ref().take(START).read_to_end(&mut start) {
                content = Box::new(BufReader::new(Failed(Some(error))));
            } else if let Some(what) = foreign::describe(path, &start) {
                return Ok(Err(FileError::at_byte(path, 0, what)));
            }
            let content = Box::new(Cursor::new(start.clone()).chain(content));
            Ok(Ok(Self {
                path: path.to_owned(),
                start,
                content,
                size,
            }))
        };
        let opened = open().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                FileError::new(path, "no permission to read the file")
            }
            _ => FileError::new(path, error),
        });
        opened?
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The first bytes of the decompressed content.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    pub(super) fn lines(self) -> Lines {
        Lines {
            file: self,
            line: Vec::new(),
            count: 0,
        }
    }

    /// The whole content; an error if it has more than `largest` bytes.
    ///
    /// A compressed file may have 64 times its size, and 16 MiB in any case: memory snapshots have 10 to
    /// 20 times their compressed size, a bomb of zeros a thousand times.
    pub(super) fn read_all(self, largest: u64) -> Result<Vec<u8>, FileError> {
        let path = self.path.clone();
        let mut bytes = Vec::new();
        let read = self.bounded(largest).read_to_end(&mut bytes);
        read.map_err(|error| FileError::new(&path, error))?;
        Ok(bytes)
    }

    /// The content as [`Self::read_all`] returns it, which fails where it has too many bytes.
    pub(super) fn bounded(self, largest: u64) -> impl Read {
        const MOST_EXPANSION: u64 = 64;
        const ALWAYS_ALLOWED: u64 = 16 << 20;
        let limit = self.size.saturating_mul(MOST_EXPANSION);
        let limit = limit.max(ALWAYS_ALLOWED).min(largest);
        let reason = if limit < largest {
            format!(
                "unpacks to more than {limit} bytes, over {MOST_EXPANSION} times its size; if this is \
                 intended, unpack it with gunzip"
            )
        } else {
            format!("longer than the limit of {limit} bytes")
        };
        let content = self.content.take(limit);
        Bounded { content, reason }
    }
}

/// A reader that fails instead of ending at its limit.
struct Bounded {
    content: io::Take<Box<dyn BufRead>>,
    reason: String,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        let is_at_limit = read == 0 && self.content.limit() == 0 && !buffer.is_empty();
        if is_at_limit && !self.content.get_mut().fill_buf()?.is_empty() {
            return Err(io::Error::other(self.reason.clone()));
        }
        Ok(read)
    }
}

/// The content of a file compressed with gzip.
struct Unpacked<R> {
    gzip: MultiGzDecoder<R>,
    /// Bytes read so far.
    bytes: u64,
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.gzip.read(buffer).map_err(|error| {
            let problem = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    "the compressed data ends early: the file is truncated"
                }
                _ => "the compressed data is damaged",
            };
            let bytes = self.bytes;
            let reason =
                format!("{problem} ({error}, after {bytes} unpacked bytes); copy it again");
            io::Error::new(error.kind(), reason)
        })?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// A reader after an error.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or(io::ErrorKind::Other.into()))
    }
}

/// Bytes of a regular file.
fn size_of_file(path: &Path) -> io::Result<u64> {
    let metadata = path.metadata()?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    let reason = if metadata.is_dir() {
        "a directory, not a regular file; name a file in it"
    } else {
        "a pipe or a device, not a regular file, which can be read more than once"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// A text file, read line by line.
pub(super) struct Lines {
    file: InputFile,
    line: Vec<u8>,
    /// Lines read.
    count: u64,
}

/// A line without its line break.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    file: &'a Path,
    number: u64,
}

impl Line<'_> {
    pub(super) fn error(&self, reason: impl ToString) -> FileError {
        FileError::in_line(self.file, self.number, reason)
    }

    /// The beginning of the text, for messages.
    pub(super) fn excerpt(&self) -> String {
        self.text.chars().take(80).collect()
    }
}

impl Lines {
    /// The next line; none at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, FileError> {
        let is_read = self.read()?;
        is_read.then(|| self.current()).transpose()
    }

    /// The next line; an empty one at the end of the file.
    pub(super) fn next_or_empty(&mut self) -> Result<Line<'_>, FileError> {
        self.read()?;
        self.current()
    }

    fn read(&mut self) -> Result<bool, FileError> {
        self.count += 1;
        let wrong = |reason| FileError::in_line(&self.file.path, self.count, reason);
        self.line.clear();
        let mut content = (&mut self.file.content).take(LONGEST_LINE);
        let read = content.read_until(b'\n', &mut self.line);
        let bytes = read.map_err(|error| wrong(format!("cannot read further: {error}")))?;
        if bytes as u64 == LONGEST_LINE && !self.line.ends_with(b"\n") {
            return Err(wrong(format!(
                "not a trace: longer than {LONGEST_LINE} bytes"
            )));
        }
        Ok(bytes > 0)
    }

    fn current(&self) -> Result<Line<'_>, FileError> {
        let (file, number) = (&*self.file.path, self.count);
        let text = str::from_utf8(&self.line);
        let text = text.map_err(|_| FileError::in_line(file, number, "not UTF-8 text"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        Ok(Line { text, file, number })
    }
}

/// The bytes, compressed with gzip. The result depends on nothing else.
///
/// # Errors
/// Never in practice: the result is written to memory.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}
