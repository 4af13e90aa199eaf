//! Compressed input: gzip, xz, zstd and zip archives, recognised by its first bytes.
//!
//! The decoders are written in Rust, so that they compile for every target. All of them accept several compressed
//! files in a row as one, as `cat a.gz b.gz` makes them, and verify checksums.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::archive;
use super::source::Origin;

/// A format of compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Gzip,
    Xz,
    Zstd,
    /// An archive, of which [one file](archive) is read.
    Zip,
}

/// The most bytes that a decoder keeps of what it unpacked: as much as `zstd` allows by default, and twice as much
/// as `xz -9` needs.
const LARGEST_WINDOW: u64 = 128 << 20;

impl Compression {
    /// The format of a file that begins with these bytes; none if it is not compressed.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // A frame, or a skippable frame, which some programs write first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [b'P', b'K', 3, 4, ..] => Some(Self::Zip),
            _ => None,
        }
    }

    /// How many times its compressed size a file may have. gzip makes memory snapshots 10 to 20 times smaller, xz and
    /// zstd up to 60 times; they make a bomb of zeros 1000 and 10 000 times smaller.
    pub(super) fn most_expansion(self) -> u64 {
        match self {
            Self::Gzip | Self::Zip => 64,
            Self::Xz | Self::Zstd => 256,
        }
    }

    /// The program that unpacks the format.
    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Gzip => "gunzip",
            Self::Xz => "unxz",
            Self::Zstd => "unzstd",
            Self::Zip => "unzip",
        }
    }

    /// The unpacked content. Errors say what is wrong, and what to do.
    ///
    /// # Errors
    /// If the input cannot be opened, or is an archive of which no file can be read.
    pub(super) fn unpack(self, packed: &Origin) -> io::Result<Box<dyn BufRead>> {
        let (start, _) = packed.open()?;
        let unpacked: Box<dyn Read> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(start)),
            Self::Xz => {
                // The decoder needs some memory in addition to the window.
                let most_kib = (LARGEST_WINDOW >> 10) as u32 + 1024;
                Box::new(XzReader::new_mem_limit(start, true, most_kib))
            }
            Self::Zstd => Box::new(ZstdReader::new(start)),
            Self::Zip => archive::open(packed.open_anywhere()?)?,
        };
        Ok(Box::new(BufReader::new(Unpacked {
            unpacked,
            compression: self,
            bytes: 0,
        })))
    }
}

/// The name of a file without the ending that a program for compression adds.
pub(super) fn unpacked_name(name: &str) -> &str {
    let plain = [".gz", ".xz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    plain.unwrap_or(name)
}

/// A decoder with errors that say what to do.
struct Unpacked {
    unpacked: Box<dyn Read>,
    compression: Compression,
    /// Bytes read so far.
    bytes: u64,
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.unpacked.read(buffer).map_err(|error| {
            let (bytes, tool) = (self.bytes, self.compression.tool());
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => format!(
                    "the compressed data ends early: the file is truncated ({error}, after {bytes} unpacked bytes); \
                     copy it again"
                ),
                io::ErrorKind::OutOfMemory => format!(
                    "unpacking needs a window of more than {} MiB; unpack it with {tool}",
                    LARGEST_WINDOW >> 20
                ),
                io::ErrorKind::Unsupported => {
                    format!("compressed in an uncommon way ({error}); unpack it with {tool}")
                }
                _ => format!(
                    "the compressed data is damaged ({error}, after {bytes} unpacked bytes); copy it again"
                ),
            };
            io::Error::new(error.kind(), reason)
        })?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The frames of a zstd file in a row. The decoder of the library reads one frame and does not compare its checksum.
struct ZstdReader<R> {
    packed: R,
    frame: FrameDecoder,
}

impl<R: BufRead> ZstdReader<R> {
    fn new(packed: R) -> Self {
        let frame = FrameDecoder::new();
        Self { packed, frame }
    }

    /// Begins the next frame; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            // A decoder that is used again takes the memory of the whole window at once.
            self.frame = FrameDecoder::new();
            self.frame.set_max_window_size(LARGEST_WINDOW);
            match self.frame.init(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let mut skipped = self.packed.by_ref().take(length);
                    if io::copy(&mut skipped, &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(zstd_error(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.frame.decode_blocks(&mut self.packed, blocks);
                decoded.map_err(zstd_error)?;
            }
            let read = self.frame.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let recorded = self.frame.get_checksum_from_data();
            if recorded.is_some() && recorded != self.frame.get_calculated_checksum() {
                let reason = "the checksum is wrong";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}

fn zstd_error(error: FrameDecoderError) -> io::Error {
    let kind = match &error {
        FrameDecoderError::WindowSizeTooBig { .. } => io::ErrorKind::OutOfMemory,
        FrameDecoderError::DictNotProvided { .. } => io::ErrorKind::Unsupported,
        _ => of_reader(&error).map_or(io::ErrorKind::InvalidData, io::Error::kind),
    };
    io::Error::new(kind, error)
}

/// The error of the reader below that caused an error, if one did.
fn of_reader<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    error.downcast_ref().or_else(|| of_reader(error.source()?))
}

/// The bytes, compressed with gzip. The result depends on nothing else.
///
/// # Errors
/// Never in practice: the result is written to memory.
pub fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::source::Source;

    /// A case is the bytes in hexadecimal.
    #[test]
    fn the_first_bytes_tell_the_format() {
        cases::check("src/formats/cases/compressed.txt", |bytes| {
            let bytes = bytes.split_whitespace();
            let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap());
            let Some(format) = Compression::of(&bytes.collect::<Vec<_>>()) else {
                return "unknown".to_owned();
            };
            let (tool, most) = (format.tool(), format.most_expansion());
            format!("{format:?}, {tool}, at most {most} times")
        });
    }

    #[test]
    fn a_name_loses_one_ending_of_a_compressed_file() {
        for (name, plain) in [
            ("a.csv.gz", "a.csv"),
            ("a.xz", "a"),
            ("a.zst", "a"),
            ("a.gz.xz", "a.gz"),
            ("a.csv", "a.csv"),
            (".gz.a", ".gz.a"),
            ("agz", "agz"),
        ] {
            assert_eq!(unpacked_name(name), plain);
        }
    }

    /// Errors tell how far the content was read.
    #[test]
    fn an_error_tells_how_many_bytes_were_unpacked() {
        let packed = gzip(&[b'x'; 1 << 20]).unwrap();
        let cut = packed[..packed.len() - 9].to_vec();
        let cut = Origin::of(Source::Memory("a.gz".into(), cut.into())).unwrap();
        let mut content = Compression::Gzip.unpack(&cut).unwrap();
        let mut unpacked = Vec::new();
        let error = content.read_to_end(&mut unpacked).unwrap_err();
        let places = format!("after {} unpacked bytes); copy it again", unpacked.len());
        assert!(
            !unpacked.is_empty() && error.to_string().ends_with(&places),
            "{error}"
        );
    }
}
