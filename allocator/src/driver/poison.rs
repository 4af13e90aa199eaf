//! Poison: freed memory is filled with one byte, and a later change of it shows that somebody wrote to memory that was freed.

use super::{DeviceAddr, Status, StreamId};

/// The byte. Numbers read from poisoned memory are NaN in every format of floating point, and −1 as integers.
pub const POISON: u8 = 0xff;

/// Memory that can be poisoned in stream order.
pub trait Poison {
    /// Fills `bytes` from `addr` with [`POISON`] as work of `stream`.
    ///
    /// # Errors
    /// If the device refuses the work.
    fn poison(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status;

    /// Looks for a change in `words` words of 8 bytes from `addr` as work of `stream`. At most 65,536 checks may be pending.
    ///
    /// # Errors
    /// If the device refuses the work.
    fn check_poison(&mut self, addr: DeviceAddr, words: u64, stream: StreamId) -> Status;

    /// Waits for all streams and returns, for each check since the last call, the number of the first word that is not
    /// poison.
    ///
    /// # Errors
    /// If the work fails.
    fn changes(&mut self) -> Status<Vec<Option<u64>>>;
}
