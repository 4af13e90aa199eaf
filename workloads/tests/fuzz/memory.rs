//! Memory in proportion to what is read.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The most memory that something may take of the host.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// In any case, in bytes.
    pub fixed: u64,
    /// For each byte read, unpacked.
    pub per_byte: u64,
}

impl Most {
    /// Does `work` on a file of these bytes. Fails if it held more memory at once.
    pub fn during<T>(self, file: &[u8], work: impl FnOnce() -> T) -> T {
        let bytes = unpacked(file);
        let most = self.fixed + self.per_byte * bytes;
        let mut done = None;
        // What is unwound would leave the counter in the middle of a measurement.
        let held = allocation_counter::measure(|| {
            done = Some(catch_unwind(AssertUnwindSafe(work)));
        });
        let done = done.expect("it was called");
        let done = done.unwrap_or_else(|panic| resume_unwind(panic));
        let held = held.bytes_max;
        assert!(
            held <= most,
            "{held} bytes of memory for {bytes} bytes read, not {most}"
        );
        done
    }
}

/// The most bytes that a file may unpack to.
fn unpacked(file: &[u8]) -> u64 {
    let bytes = file.len() as u64;
    match file {
        [0x1f, 0x8b, ..] => (64 * bytes).max(16 << 20),
        _ => bytes,
    }
}
