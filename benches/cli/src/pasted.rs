//! Texts that `coalesce advise` is given instead of a recording: the last lines of a log, or the output of a tool.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use coalesce_advisor::texts::{Explanation, LOOKED_FOR, explain};
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::InputError;

/// The end of a log has the reason: so many bytes of it are read.
const READ: u64 = 4 << 20;

/// The text of a source; `None` if it is none.
fn text(source: &Source) -> Option<String> {
    let bytes = match source {
        Source::File(path) => {
            let mut file = File::open(path).ok()?;
            let length = file.metadata().ok().filter(|there| there.is_file())?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(READ)))
                .ok()?;
            let mut bytes = Vec::new();
            file.take(READ).read_to_end(&mut bytes).ok()?;
            bytes
        }
        Source::Memory(_, bytes) => bytes.as_ref().to_vec(),
        Source::StandardInput => return None,
    };
    decoded(&bytes)
}

/// The text that bytes are: UTF-8, or UTF-16 with its mark, which Windows' PowerShell writes. Logs often have a few bytes that
/// are neither; compressed and binary files have many zeros.
fn decoded(bytes: &[u8]) -> Option<String> {
    /// Of so many bytes, one may be zero.
    const PER_ZERO: usize = 1000;
    let utf16 = |decode: fn([u8; 2]) -> u16| {
        let (pairs, _) = bytes.as_chunks::<2>();
        String::from_utf16_lossy(&pairs.iter().map(|&pair| decode(pair)).collect::<Vec<_>>())
    };
    match bytes {
        [0xff, 0xfe, ..] => Some(utf16(u16::from_le_bytes)),
        [0xfe, 0xff, ..] => Some(utf16(u16::from_be_bytes)),
        _ => {
            let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
            let is_text = zeros <= bytes.len() / PER_ZERO;
            is_text.then(|| String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// What a source that is no recording says as a text, with its name where there are several.
///
/// # Errors
/// `error`, with what is looked for in texts if it is a text without memory figures.
pub fn explained(
    source: &Source,
    error: anyhow::Error,
    of_several: bool,
) -> anyhow::Result<Explanation> {
    let is_of_no_format = match error.downcast_ref::<InputError>() {
        Some(InputError::File(error)) => error.is_of_no_format(),
        _ => false,
    };
    let Some(text) = text(source).filter(|_| is_of_no_format) else {
        return Err(error);
    };
    let name = of_several.then(|| source.to_string());
    let found = explain(&text, name.as_deref());
    found.ok_or_else(|| anyhow::anyhow!("{error:#}. As a text: {LOOKED_FOR}"))
}
