//! A limit on the memory that may be taken from a device.

use super::held::Held;
use crate::driver::DriverError;
use crate::driver::calls::{Call, CallKind};
use crate::driver::tap::Hook;

/// Refuses calls for memory that would bring what is held above a limit, as a device does that has no
/// more.
#[derive(Debug)]
pub struct Limit {
    bytes: u64,
    held: Held,
}

impl Limit {
    /// At most `bytes`, counted as they are asked for.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            held: Held::default(),
        }
    }

    fn allows(&self, more: u64) -> bool {
        let held = self.held.bytes().current.cast_unsigned();
        held.checked_add(more).is_some_and(|sum| sum <= self.bytes)
    }
}

impl Hook for Limit {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        let takes = matches!(kind, CallKind::Malloc | CallKind::Create);
        if takes && !self.allows(bytes) {
            return Err(DriverError::OutOfMemory);
        }
        Ok(())
    }

    fn after(&mut self, call: &Call) {
        self.held.after(call);
    }
}
