//! The bytes of a file, read as they are needed.

use std::io::{self, Read};

/// The reason of an error.
pub(super) type Reason = String;

/// A file and some of its next bytes.
pub(super) struct Buffered<R> {
    source: R,
    buffer: Vec<u8>,
    /// The next byte in the buffer, and the end of the bytes in it.
    next: usize,
    end: usize,
    /// The position of the buffer in the file.
    start: u64,
    /// The error of the source.
    pub(super) failure: Option<io::Error>,
}

impl<R: Read> Buffered<R> {
    pub(super) fn new(source: R) -> Self {
        const BUFFER: usize = 1 << 16;
        Self {
            source,
            buffer: vec![0; BUFFER],
            next: 0,
            end: 0,
            start: 0,
            failure: None,
        }
    }

    /// The position of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.start + self.next as u64
    }

    /// The bytes in the buffer, at least `wanted` unless the file ends before or the buffer has less room.
    #[inline]
    pub(super) fn peek(&mut self, wanted: usize) -> Result<&[u8], Reason> {
        if self.end - self.next < wanted {
            self.refill(wanted)?;
        }
        Ok(&self.buffer[self.next..self.end])
    }

    #[cold]
    fn refill(&mut self, wanted: usize) -> Result<(), Reason> {
        self.buffer.copy_within(self.next..self.end, 0);
        self.start += self.next as u64;
        self.end -= self.next;
        self.next = 0;
        while self.end < wanted.min(self.buffer.len()) {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let reason = error.to_string();
                    self.failure = Some(error);
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn skip(&mut self, bytes: usize) {
        self.next = (self.next + bytes).min(self.end);
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let rest = self.buffer.get(self.next..self.end).unwrap_or_default();
        match rest.first_chunk() {
            Some(&bytes) => {
                self.next += N;
                Ok(bytes)
            }
            None => self.array_over_the_end(),
        }
    }

    /// Bytes that are not all in the buffer.
    #[cold]
    fn array_over_the_end<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let bytes = self
            .peek(N)?
            .first_chunk()
            .copied()
            .ok_or("the file ends here unexpectedly")?;
        self.skip(N);
        Ok(bytes)
    }

    /// Appends the next `len` bytes to `out`.
    pub(super) fn take(&mut self, len: u64, what: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
        let mut left = len;
        while left > 0 {
            let bytes = self.peek(1)?;
            let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 {
                let read = len - left;
                return Err(format!(
                    "{what} of {len} bytes, but the file ends after {read} bytes; it is truncated"
                ));
            }
            out.extend_from_slice(&bytes[..count]);
            self.skip(count);
            left -= count as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const BUFFER: usize = 1 << 16;

    /// Gives the bytes in pieces, with an interruption before each, and an error or the end after them.
    pub(in super::super) struct Pieces {
        pub bytes: Vec<u8>,
        /// The most bytes to give at once.
        pub piece: usize,
        pub at: usize,
        pub is_interrupted: bool,
        pub fails: bool,
    }

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_interrupted = !self.is_interrupted;
            if self.is_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let rest = &self.bytes[self.at..];
            if rest.is_empty() && self.fails {
                return Err(io::Error::other("unplugged"));
            }
            let count = rest.len().min(self.piece).min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.at += count;
            Ok(count)
        }
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn file(len: usize, piece: usize, fails: bool) -> Buffered<Pieces> {
        Buffered::new(Pieces {
            bytes: bytes(len),
            piece,
            at: 0,
            is_interrupted: false,
            fails,
        })
    }

    #[test]
    fn bytes_are_read_as_they_are_needed() {
        let mut file = file(20, 4, false);
        assert_eq!((file.at(), file.peek(0).unwrap()), (0, &[][..]));
        assert_eq!(file.peek(1).unwrap(), [0, 1, 2, 3]);
        assert_eq!(file.peek(4).unwrap(), [0, 1, 2, 3]);
        file.skip(1);
        assert_eq!(file.at(), 1);
        assert_eq!(file.peek(3).unwrap(), [1, 2, 3]);
        assert_eq!(file.peek(4).unwrap(), [1, 2, 3, 4, 5, 6, 7]);
        // No more than the bytes in the buffer are skipped.
        file.skip(100);
        assert_eq!(file.at(), 8);
        assert_eq!(file.array::<3>(), Ok([8, 9, 10]));
        assert_eq!(file.array::<3>(), Ok([11, 12, 13]));
        assert_eq!(file.array::<1>(), Ok([14]));
        assert_eq!(file.at(), 15);
        assert_eq!(file.peek(100).unwrap(), [15, 16, 17, 18, 19]);
        let end = Err("the file ends here unexpectedly".to_owned());
        assert_eq!((file.array::<6>(), file.at()), (end, 15));
        assert_eq!(
            (file.array::<5>(), file.at()),
            (Ok([15, 16, 17, 18, 19]), 20)
        );
        assert!(file.peek(1).unwrap().is_empty());
        assert!(file.failure.is_none());
    }

    #[test]
    fn more_than_the_buffer_is_taken_in_parts() {
        const LEN: usize = 3 * BUFFER + 5;
        for piece in [1000, BUFFER, LEN] {
            let mut file = file(LEN, piece, false);
            assert_eq!(file.array::<1>(), Ok([0]));
            assert_eq!(file.peek(2 * BUFFER).unwrap(), &bytes(LEN)[1..=BUFFER]);
            let mut out = vec![7];
            file.take(LEN as u64 - 3, "a text", &mut out).unwrap();
            assert_eq!((out[0], file.at()), (7, LEN as u64 - 2));
            assert_eq!(out[1..], bytes(LEN)[1..LEN - 2]);
            file.take(0, "nothing", &mut out).unwrap();
            let error = file.take(10, "a text", &mut out).unwrap_err();
            let expected = "a text of 10 bytes, but the file ends after 2 bytes; it is truncated";
            assert_eq!(error, expected);
            assert_eq!(out[1..], bytes(LEN)[1..]);
        }
    }

    #[test]
    fn an_error_of_the_source_is_kept() {
        let mut file = file(3, 8, true);
        assert_eq!(file.peek(3).unwrap(), [0, 1, 2]);
        assert_eq!(file.peek(4), Err("unplugged".to_owned()));
        assert_eq!(file.failure.take().unwrap().to_string(), "unplugged");
        // What was read before is still there.
        assert_eq!(file.array::<3>(), Ok([0, 1, 2]));
        let mut out = Vec::new();
        assert_eq!(
            file.take(1, "a text", &mut out),
            Err("unplugged".to_owned())
        );
        assert!(file.failure.is_some());
    }
}
