//! What `torch.save` writes before an object in its format of PyTorch 1.5 and earlier, which
//! `_use_new_zipfile_serialization=False` still selects: a magic number, the version of the protocol and a dict about
//! the system, each a pickle. The keys of storages follow the object.
//!
//! Source: torch/serialization.py (`_legacy_save`) of PyTorch 2.11.

/// `MAGIC_NUMBER`, 0x1950a86a20f9469cfc6c, as LONG1 of ten bytes, and STOP.
const MAGIC: [u8; 13] = [
    0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.',
];

/// PROTO with its operand; protocol 4 and later add FRAME with eight bytes.
const STARTS: [usize; 2] = [2, 11];

/// Bytes of the longest pickle of the magic number.
pub(super) const LONGEST: usize = 11 + MAGIC.len();

/// Pickles between the magic number and the object.
pub(super) const BETWEEN: usize = 2;

/// Bytes of the pickle of the magic number, if a file begins with it.
pub(super) fn magic(start: &[u8]) -> Option<usize> {
    let mut starts = STARTS.into_iter();
    let at = starts.find(|&at| {
        let rest = start.get(at..);
        rest.is_some_and(|rest| rest.starts_with(&MAGIC))
    })?;
    Some(at.saturating_add(MAGIC.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_number_is_known_in_every_protocol() {
        let plain = [&[0x80, 2], &MAGIC[..], b"rest"].concat();
        assert_eq!(magic(&plain), Some(15));
        let framed = [b"\x80\x04\x95\x0d\0\0\0\0\0\0\0", &MAGIC[..]].concat();
        assert_eq!((magic(&framed), framed.len()), (Some(LONGEST), LONGEST));
        assert_eq!(magic(&framed[1..]), None);
        assert_eq!(magic(&plain[..14]), None);
    }
}
