//! Zip archives, of which one file is read: the object that `torch.save` wrote, or the only file.
//!
//! `torch.save` writes the pickle of an object as `NAME/data.pkl`, beside `version`, `byteorder` and the contents of
//! tensors; none of them is compressed. Source: torch/serialization.py (`_save`) of PyTorch 1.6 to 2.11.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use coalesce_alloc::printable::printable;
use flate2::CrcReader;
use flate2::bufread::DeflateDecoder;
use zip::read::ZipFile;
use zip::{CompressionMethod, ZipArchive};

/// What is read at any place.
pub(super) trait ReadSeek: BufRead + Seek {}

impl<R: BufRead + Seek> ReadSeek for R {}

/// Opens the file of an archive that is read.
///
/// # Errors
/// If the archive is damaged, has several files, or its file is encrypted or compressed otherwise than by deflate.
pub(super) fn open(archive: Box<dyn ReadSeek>) -> io::Result<Box<dyn Read>> {
    let mut archive = ZipArchive::new(archive).map_err(damaged)?;
    let index = chosen(&archive)?;
    let part = Part::of(&archive.by_index_raw(index).map_err(damaged)?)?;
    let mut content = archive.into_inner();
    content.seek(SeekFrom::Start(part.start))?;
    let stored = content.take(part.packed_bytes);
    let content: Box<dyn Read> = match part.method {
        CompressionMethod::Stored => Box::new(stored),
        CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(BufReader::new(stored))),
        other => {
            let reason = format!("a zip archive with {other}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
    };
    Ok(match part.crc {
        Some(crc) => Box::new(Checked {
            content: CrcReader::new(content),
            crc,
        }),
        None => content,
    })
}

/// A file in an archive.
struct Part {
    /// Its first byte in the archive.
    start: u64,
    /// Its bytes there.
    packed_bytes: u64,
    method: CompressionMethod,
    /// The checksum of its content, if that is to be trusted.
    crc: Option<u32>,
}

impl Part {
    fn of(file: &ZipFile<'_, Box<dyn ReadSeek>>) -> io::Result<Self> {
        if file.encrypted() {
            let reason = "an encrypted zip archive; unpack it first";
            return Err(io::Error::other(reason));
        }
        let start = file.data_start().ok_or(io::ErrorKind::InvalidData)?;
        // torch.serialization.set_crc32_options(False) lets torch.save write others.
        let is_checked = !is_object(file.name_raw());
        Ok(Self {
            start,
            packed_bytes: file.compressed_size(),
            method: file.compression(),
            crc: is_checked.then(|| file.crc32()),
        })
    }
}

/// Whether a file is the pickle of an object that `torch.save` wrote.
fn is_object(name: &[u8]) -> bool {
    name == b"data.pkl" || name.ends_with(b"/data.pkl")
}

/// Whether a file holds what somebody packed, rather than a folder or what an operating system adds.
fn is_content(name: &[u8]) -> bool {
    !name.ends_with(b"/") && !name.starts_with(b"__MACOSX/") && !name.ends_with(b".DS_Store")
}

/// The index of the file that is read.
fn chosen<R: Read + Seek>(archive: &ZipArchive<R>) -> io::Result<usize> {
    let found = |is_it: fn(&[u8]) -> bool| -> Vec<(usize, &[u8])> {
        let names = archive.file_names_raw().enumerate();
        names.filter(|(_, name)| is_it(name)).collect()
    };
    match (&found(is_object)[..], &found(is_content)[..]) {
        (&[(object, _)], _) => Ok(object),
        (_, &[(only, _)]) => Ok(only),
        (_, []) => Err(io::Error::other("an empty zip archive")),
        (_, &[(_, first), .., (_, last)]) => {
            let (first, last) = (
                String::from_utf8_lossy(first),
                String::from_utf8_lossy(last),
            );
            Err(io::Error::other(format!(
                "a zip archive of several files ({} to {}); unpack it, and name one of them or their folder",
                printable(first),
                printable(last)
            )))
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "the zip archive is truncated or damaged ({error}); copy it again"
    ))
}

/// A file whose checksum is compared at its end.
struct Checked<R> {
    content: CrcReader<R>,
    crc: u32,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.content.crc().sum() != self.crc {
            let reason = "the checksum is wrong";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(read)
    }
}
