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
        let bytes = self.peek(N)?.first_chunk().copied();
        let bytes = bytes.ok_or("the file ends here unexpectedly")?;
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
