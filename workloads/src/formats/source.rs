//! Where input comes from: a file, standard input, or memory.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coalesce_alloc::printable;

use super::archive::ReadSeek;

/// Where input is read from. A path converts to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file, a pipe or a device.
    File(PathBuf),
    /// The standard input of the process, which can be read once.
    StandardInput,
    /// Bytes in memory, with the name of the file that they come from.
    Memory(PathBuf, Bytes),
}

/// The name of standard input and standard output on a command line.
pub const STANDARD_STREAM: &str = "-";

/// The most bytes that [`Source::read`] reads into memory.
const LARGEST_READ: u64 = 1 << 32;

impl Source {
    /// The source that a user names: `-` is standard input, anything else a file. `./-` is a file called `-`.
    pub fn named(name: impl AsRef<Path>) -> Self {
        match name.as_ref() {
            name if name == STANDARD_STREAM => Self::StandardInput,
            name => Self::File(name.to_owned()),
        }
    }

    /// The path of the file, or `standard input`, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::StandardInput => Path::new("standard input"),
            Self::Memory(name, _) => name,
        }
    }

    /// Reads all of the source, at most 4 GiB.
    ///
    /// # Errors
    /// If it cannot be read, or has more.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(path) => limited(File::open(path)?, LARGEST_READ),
            Self::StandardInput => {
                // The stream belongs to the process. A second reader would find it empty.
                static IS_READ: AtomicBool = AtomicBool::new(false);
                if IS_READ.swap(true, Ordering::Relaxed) {
                    return Err(io::Error::other(
                        "named twice, but it can be read only once",
                    ));
                }
                limited(stdin().lock(), LARGEST_READ)
            }
            Self::Memory(_, bytes) => Ok(bytes.as_ref().to_vec()),
        }
    }

    /// The same input, in memory if it can be read only once, so that it can be opened again.
    ///
    /// # Errors
    /// As [`Source::read`], and if there is no such file.
    pub fn kept(self) -> io::Result<Self> {
        let Origin { source, kept } = Origin::of(self)?;
        Ok(match kept {
            Some(bytes) => Self::Memory(source.path().to_owned(), bytes),
            None => source,
        })
    }

    /// As [`Source::read`], for text.
    ///
    /// # Errors
    /// As [`Source::read`], and if it is not UTF-8.
    pub fn read_to_string(&self) -> io::Result<String> {
        let text = String::from_utf8(self.read()?);
        text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))
    }
}

impl<P: AsRef<Path>> From<P> for Source {
    fn from(path: P) -> Self {
        Self::File(path.as_ref().to_owned())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable::path(self.path()).fmt(f)
    }
}

/// Reads at most so many bytes.
fn limited(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("longer than {most} bytes")));
    }
    Ok(bytes)
}

/// An input that can be read several times.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Origin {
    source: Source,
    /// What was read from standard input, a pipe or a device, which can be read only once.
    kept: Option<Bytes>,
}

impl Origin {
    /// Keeps the bytes of a source that can be read only once.
    pub(super) fn of(source: Source) -> io::Result<Self> {
        if let Source::Memory(_, bytes) = &source {
            let kept = Some(bytes.clone());
            return Ok(Self { source, kept });
        }
        if let Source::File(path) = &source {
            let there = fs::metadata(path)?;
            if there.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if there.is_file() {
                return Ok(Self { source, kept: None });
            }
        }
        let kept = Some(Bytes::from(source.read()?));
        Ok(Self { source, kept })
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    /// The bytes, to be read in any order.
    pub(super) fn open_anywhere(&self) -> io::Result<Box<dyn ReadSeek>> {
        Ok(match &self.kept {
            None => Box::new(BufReader::new(File::open(self.path())?)),
            Some(bytes) => Box::new(Cursor::new(bytes.clone())),
        })
    }

    /// The bytes, and their number.
    pub(super) fn open(&self) -> io::Result<(Box<dyn BufRead>, u64)> {
        Ok(match &self.kept {
            None => {
                let file = File::open(self.path())?;
                let size = file.metadata()?.len();
                (Box::new(BufReader::new(file)), size)
            }
            Some(bytes) => (
                Box::new(Cursor::new(bytes.clone())),
                bytes.as_ref().len() as u64,
            ),
        })
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Shared bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes(Arc<Vec<u8>>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &[u8]) -> Source {
        Source::Memory("a\u{1b}".into(), bytes.to_vec().into())
    }

    #[test]
    fn a_source_is_named_by_its_path() {
        assert_eq!(Source::named("-"), Source::StandardInput);
        let file = Source::named("./-");
        assert_eq!(file, Source::File("./-".into()));
        let found = Source::from("-");
        assert_eq!(found, Source::File("-".into()), "a path is no name");
        let found = [file.path(), Source::StandardInput.path()];
        assert_eq!(found, [Path::new("./-"), Path::new("standard input")]);
        assert_eq!(memory(b"abc").to_string(), "a\\u{1b}");
        let origin = Origin::of(memory(b"abc")).unwrap();
        let found = format!("{origin:?} {:?}", Bytes::from(vec![1, 2]));
        assert_eq!(found, r#"Memory("a\u{1b}", 3 bytes) 2 bytes"#);
        assert_eq!(origin.path(), Path::new("a\u{1b}"));
    }

    #[test]
    fn a_source_is_read_up_to_a_limit() {
        let read = |most| limited(&b"abcde"[..], most).map_err(|error| error.to_string());
        assert_eq!([read(5), read(6)], [(); 2].map(|()| Ok(b"abcde".to_vec())));
        assert_eq!(read(4), Err("longer than 4 bytes".to_owned()));
        assert_eq!(memory(b"abc").read().unwrap(), b"abc");
        assert_eq!(memory(b"abc").read_to_string().unwrap(), "abc");
        let wrong = memory(b"\xff").read_to_string().unwrap_err();
        assert_eq!(wrong.to_string(), "not UTF-8 text");
        let file = Source::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(
            file.read_to_string()
                .unwrap()
                .contains("coalesce-workloads")
        );
    }

    #[test]
    fn an_origin_is_opened_again_and_again() {
        let mut text = String::new();
        let origin = Origin::of(memory(b"abc")).unwrap();
        for count in 1..3 {
            let (mut content, size) = origin.open().unwrap();
            content.read_to_string(&mut text).unwrap();
            assert_eq!((size, &*text), (3, &*"abc".repeat(count)));
        }
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let file = Origin::of(manifest.into()).unwrap();
        assert!(file.kept.is_none(), "a file is read when it is needed");
        let (mut content, size) = file.open().unwrap();
        text.clear();
        content.read_to_string(&mut text).unwrap();
        assert_eq!(size, text.len() as u64);
        let folder = Origin::of(env!("CARGO_MANIFEST_DIR").into()).unwrap_err();
        assert_eq!(folder.kind(), io::ErrorKind::IsADirectory);
        assert!(Origin::of("no/such/file".into()).is_err());
    }
}
