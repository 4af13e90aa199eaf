//! Files that may be compressed with gzip. What they are called does not matter.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The file, unpacked if it is packed.
///
/// # Errors
/// If it is no file, or cannot be read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    check_is_file(path)?;
    let mut file = BufReader::new(File::open(path)?);
    Ok(if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// All bytes of the file, unpacked if it is packed; at most `largest` of them.
///
/// A packed file may unpack to 64 times its size, and to 16 MiB in any case: memory snapshots unpack to
/// 10 or 20 times theirs, while a bomb of zeros reaches a thousand.
///
/// # Errors
/// If it is no file, cannot be read, or has or unpacks to more bytes than that.
pub fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    const MOST_UNPACKED: u64 = 64;
    const ALWAYS: u64 = 16 << 20;
    let size = path.metadata()?.len();
    let limit = size.saturating_mul(MOST_UNPACKED).max(ALWAYS).min(largest);
    let mut bytes = Vec::new();
    open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let reason = if limit < largest {
            format!(
                "unpacks to more than {limit} bytes, over {MOST_UNPACKED} times its size; if it is no \
                 bomb, unpack it with gunzip"
            )
        } else {
            format!("longer than {limit} bytes, the most that are read")
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(bytes)
}

/// The bytes, packed: the same ones for the same.
///
/// # Errors
/// None that can be thought of; nothing is written to but memory.
pub fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}

fn check_is_file(path: &Path) -> io::Result<()> {
    let kind = path.metadata()?;
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "a directory"
    } else {
        "a pipe or a device"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{what}; it is read more than once, so it must be a file"),
    ))
}
