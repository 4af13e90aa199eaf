//! A limit on memory, in proportion to the input.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The most host memory that an operation may allocate.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Bytes for an input of any size.
    pub fixed: u64,
    /// Bytes for each byte of the unpacked input.
    pub per_byte: u64,
}

impl Most {
    /// Runs `work` on a file of these bytes. Panics if it held more memory at once.
    pub fn during<T>(self, file: &[u8], work: impl FnOnce() -> T) -> T {
        let bytes = unpacked(file);
        let most = self.fixed + self.per_byte * bytes;
        let mut done = None;
        // Unwinding through `measure` would leave the counter in the middle of a measurement.
        let held = allocation_counter::measure(|| {
            done = Some(catch_unwind(AssertUnwindSafe(work)));
        });
        let done = done
            .expect("it was called")
            .unwrap_or_else(|panic| resume_unwind(panic));
        let held = held.bytes_max;
        assert!(
            held <= most,
            "{held} bytes of memory for {bytes} bytes read, not {most}"
        );
        done
    }
}

/// The most bytes that a file may decompress to.
fn unpacked(file: &[u8]) -> u64 {
    const ALWAYS_ALLOWED: u64 = 16 << 20;
    let bytes = file.len() as u64;
    match file {
        [0x1f, 0x8b, ..] => (64 * bytes).max(ALWAYS_ALLOWED),
        // xz, zstd, and the frames that zstd skips.
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..]
        | [0x28, 0xb5, 0x2f, 0xfd, ..]
        | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => (256 * bytes).max(ALWAYS_ALLOWED),
        _ => bytes,
    }
}
