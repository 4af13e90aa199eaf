//! A limit on the memory held from a device.

use super::held::HeldMemory;
use crate::driver::calls::{Call, CallKind};
use crate::driver::tap::Hook;
use crate::driver::{DriverError, Status};

/// Refuses requests that would exceed a limit, as a smaller device would. It does not limit the device's
/// pool, which reserves memory on its own.
#[derive(Debug)]
pub struct Limit {
    bytes: u64,
    /// Bytes that count, too, and that others hold.
    elsewhere: u64,
    held: HeldMemory,
}

impl Limit {
    /// Allows at most `bytes` of a device of this granularity.
    #[must_use]
    pub fn new(bytes: u64, granularity: u64) -> Self {
        Self {
            bytes,
            elsewhere: 0,
            held: HeldMemory::new(granularity),
        }
    }

    /// Changes the limit. Memory already held beyond it stays.
    pub fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Notes what others hold under the same limit.
    pub fn count_elsewhere(&mut self, bytes: u64) {
        self.elsewhere = bytes;
    }

    /// The limit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory that is held.
    #[must_use]
    pub fn held(&self) -> &HeldMemory {
        &self.held
    }

    fn allows(&self, more: u64) -> bool {
        self.held.in_pages(more) <= self.room()
    }
}

impl Hook for Limit {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Status {
        let takes = matches!(kind, CallKind::Malloc | CallKind::Create);
        if takes && !self.allows(bytes) {
            return Err(DriverError::OutOfMemory);
        }
        Ok(())
    }

    fn after(&mut self, call: &Call) {
        self.held.after(call);
    }

    fn room(&self) -> u64 {
        let held = self.held.bytes().current.cast_unsigned();
        let held = held.saturating_add(self.elsewhere);
        self.bytes.saturating_sub(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::GRANULARITY;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::tap::Tap;

    #[test]
    fn freed_memory_can_be_allocated_again() {
        let device = SimDevice::new(&SimConfig::default());
        let limit = Limit::new(2 * GRANULARITY, GRANULARITY);
        let mut device = Tap::over(device, limit);
        let first = device.malloc(1).unwrap();
        device.malloc(GRANULARITY).unwrap();
        assert_eq!(device.malloc(1), Err(DriverError::OutOfMemory));
        device.free(first, 1).unwrap();
        assert!(device.malloc(1).is_ok());
        device.hook_mut().set(3 * GRANULARITY);
        assert_eq!(device.memory_info().unwrap().free, GRANULARITY);
        assert!(device.malloc(1).is_ok());
        assert_eq!(device.memory_info().unwrap().free, 0);
        assert!(device.malloc(1).is_err());
    }
}
