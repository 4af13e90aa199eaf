//! Input files: unpacked if they are compressed, read by lines or as a whole. The content of a file decides what
//! it is, not its name.

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use coalesce_alloc::printable::{self, printable};
use memchr::memchr;

use super::compression::Compression;
use super::foreign;
use super::source::{Origin, Source};
use crate::budget::Budget;
use crate::op::WorkloadError;

/// Bytes of the longest line that is read.
const LONGEST_LINE: usize = 1 << 20;

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
    /// In the unpacked file, counted from 0.
    Byte(u64),
}

/// The first words of the error for a file whose format is not known.
pub(super) const NO_FORMAT: &str = "of no format that is read";

impl FileError {
    /// Whether the file is of no format that is read, rather than damaged.
    #[must_use]
    pub fn is_of_no_format(&self) -> bool {
        self.reason.starts_with(NO_FORMAT)
    }

    pub(super) fn new(file: &Path, reason: impl ToString) -> Self {
        Self {
            file: file.to_owned(),
            position: Position::Unknown,
            reason: reason.to_string(),
        }
    }

    /// A file that cannot be opened or read at all.
    pub(super) fn unread(file: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::new(file, "no permission to read the file"),
            io::ErrorKind::IsADirectory => {
                Self::new(file, "a directory, not a regular file; name a file in it")
            }
            _ => Self::new(file, error),
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

    /// Whether the content is wrong, rather than the file unreadable.
    pub(super) fn is_of_content(&self) -> bool {
        self.position != Position::Unknown
    }

    /// The same error with a hint behind the reason.
    pub(super) fn with_hint(self, hint: &str) -> Self {
        let reason = format!("{}; {hint}", self.reason);
        Self { reason, ..self }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", printable::path(&self.file))?;
        match self.position {
            Position::Unknown => {}
            Position::Line(line) => write!(f, ", line {line}")?,
            Position::Byte(byte) => write!(f, ", byte {byte}")?,
        }
        const LONGEST: usize = 5000;
        write!(f, ": {}", printable(&self.reason).within(LONGEST))
    }
}

impl From<FileError> for WorkloadError {
    fn from(error: FileError) -> Self {
        Self::Source(Box::new(error))
    }
}

/// An open file.
pub(super) struct InputFile {
    origin: Origin,
    /// The first bytes of the unpacked content.
    start: Vec<u8>,
    /// The unpacked content that has not been read.
    content: Box<dyn BufRead>,
    /// Bytes before unpacking.
    size: u64,
    compression: Option<Compression>,
}

impl InputFile {
    /// Opens a file or standard input. Files of formats that no reader knows cause an error that names the format.
    pub(super) fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        let source = source.into();
        let origin = Origin::of(source.clone());
        Self::of(origin.map_err(|error| FileError::unread(source.path(), error))?)
    }

    /// Opens what was opened before, from its beginning.
    pub(super) fn of(origin: Origin) -> Result<Self, FileError> {
        /// More bytes than any header line has.
        const START: u64 = 1 << 16;
        let open = || {
            let (mut content, size) = origin.open()?;
            let compression = Compression::of(content.fill_buf()?);
            if let Some(compression) = compression {
                content = Box::new(BufReader::new(Bounded::unpacked(
                    compression.unpack(&origin)?,
                    compression,
                    size,
                )));
            }
            let mut start = Vec::new();
            // An error is kept for the reader that knows what the content is, and so where the error is.
            if let Err(error) = content.by_ref().take(START).read_to_end(&mut start) {
                content = Box::new(BufReader::new(Failed(Some(error))));
            } else if let Some(what) = foreign::describe(origin.path(), &start) {
                return Ok(Err(FileError::at_byte(origin.path(), 0, what)));
            }
            Ok(Ok((start, content, size, compression)))
        };
        let opened = open().map_err(|error: io::Error| FileError::unread(origin.path(), error));
        let (start, content, size, compression) = opened??;
        let content = Box::new(Cursor::new(start.clone()).chain(content));
        Ok(Self {
            origin,
            start,
            content,
            size,
            compression,
        })
    }

    /// What to open to read the file again.
    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn path(&self) -> &Path {
        self.origin.path()
    }

    /// How much memory may be kept of it.
    pub(super) fn budget(&self) -> Budget {
        match self.compression {
            None => Budget::of_plain(self.size),
            Some(compression) => {
                let (most, tool) = (compression.most_expansion(), compression.tool());
                Budget::of_packed(self.size, most, tool)
            }
        }
    }

    /// The first bytes of the unpacked content.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The unpacked content.
    pub(super) fn into_content(self) -> Box<dyn BufRead> {
        self.content
    }

    pub(super) fn lines(self) -> Lines {
        Lines {
            file: self,
            buffer: vec![0; 1 << 16],
            next: 0,
            end: 0,
            line: 0..0,
            count: 0,
        }
    }

    /// The whole content; an error if it has more than `largest` bytes.
    ///
    /// A compressed file may have at most half of its [budget](Self::budget).
    pub(super) fn read_all(self, largest: u64) -> Result<Vec<u8>, FileError> {
        let most = self.budget().bytes() / 2;
        self.read_at_most(largest, most)
    }

    /// The whole content; an error if it has more than `largest` bytes, or more than `most` and is compressed.
    pub(super) fn read_at_most(self, largest: u64, most: u64) -> Result<Vec<u8>, FileError> {
        let path = self.path().to_owned();
        let mut bytes = Vec::new();
        let read = self.unpacked(largest, most).read_to_end(&mut bytes);
        read.map_err(|error| FileError::new(&path, error))?;
        Ok(bytes)
    }

    /// The content, which fails where it has more than `largest` bytes.
    pub(super) fn bounded(self, largest: u64) -> impl Read {
        self.unpacked(largest, u64::MAX)
    }

    /// The content as [`Self::bounded`] returns it, of a compressed file at most `most` bytes.
    fn unpacked(self, largest: u64, most: u64) -> impl Read {
        let (limit, reason) = match self.compression {
            Some(compression) if most < largest => {
                let why = "too many to keep in memory";
                (most, unpacks_to_more(most, why, compression))
            }
            _ => (largest, format!("longer than the limit of {largest} bytes")),
        };
        let content = self.content.take(limit);
        Bounded { content, reason }
    }
}

/// What is said of a compressed file with more bytes than it may have.
fn unpacks_to_more(limit: u64, why: &str, compression: Compression) -> String {
    format!(
        "unpacks to more than {limit} bytes, {why}; if this is intended, unpack it with {}",
        compression.tool()
    )
}

/// A reader that fails instead of ending at its limit.
struct Bounded {
    content: io::Take<Box<dyn BufRead>>,
    reason: String,
}

impl Bounded {
    /// What a compressed file of `size` bytes unpacks to. No reader does more work than such a file deserves: the limit is
    /// some times its size, and 16 MiB in any case.
    fn unpacked(content: Box<dyn BufRead>, compression: Compression, size: u64) -> Self {
        const ALWAYS_ALLOWED: u64 = 16 << 20;
        let most = compression.most_expansion();
        let limit = size.saturating_mul(most).max(ALWAYS_ALLOWED);
        let why = format!("over {most} times its size");
        Self {
            content: content.take(limit),
            reason: unpacks_to_more(limit, &why, compression),
        }
    }
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

/// A reader after an error.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or(io::ErrorKind::Other.into()))
    }
}

/// A text file, read line by line.
pub(super) struct Lines {
    file: InputFile,
    buffer: Vec<u8>,
    /// The bytes in the buffer that were read from the file and belong to later lines.
    next: usize,
    end: usize,
    /// The current line in the buffer, with its line break.
    line: Range<usize>,
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
        excerpt(self.text)
    }
}

/// The beginning of a text, for messages.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 80;
    let start: String = text.chars().take(LONGEST).collect();
    printable(start).to_string()
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
        let mut searched = 0;
        loop {
            let rest = &self.buffer[self.next..self.end];
            let found = memchr(b'\n', &rest[searched..]).map(|at| searched + at + 1);
            if found.unwrap_or(rest.len() + 1) > LONGEST_LINE {
                return Err(self.wrong(format!("not a trace: longer than {LONGEST_LINE} bytes")));
            }
            searched = rest.len();
            let is_last = found.is_none() && self.refill()? == 0;
            if found.is_some() || is_last {
                let end = found.map_or(self.end, |len| self.next + len);
                self.line = self.next..end;
                self.next = end;
                return Ok(!self.line.is_empty());
            }
        }
    }

    /// Reads more of the file behind the bytes of later lines. Returns how many bytes, none at its end.
    fn refill(&mut self) -> Result<usize, FileError> {
        self.buffer.copy_within(self.next..self.end, 0);
        self.end -= self.next;
        self.next = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.file.content.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.wrong(format!("cannot read further: {error}"))),
            }
        }
    }

    /// An error in the current line.
    fn wrong(&self, reason: String) -> FileError {
        FileError::in_line(self.file.path(), self.count, reason)
    }

    fn current(&self) -> Result<Line<'_>, FileError> {
        let mut line = &self.buffer[self.line.clone()];
        while let [rest @ .., b'\n' | b'\r'] = line {
            line = rest;
        }
        let text = str::from_utf8(line).map_err(|_| self.wrong("not UTF-8 text".to_owned()))?;
        let (file, number) = (self.file.path(), self.count);
        Ok(Line { text, file, number })
    }
}

#[cfg(test)]
mod tests;
