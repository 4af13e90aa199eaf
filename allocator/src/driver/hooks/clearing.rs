//! Memory that was returned to a device, and is cleared before it is handed out again.
//!
//! Measured on an H100 and an H200 with driver 580 (`results/GPU.md`). The driver clears returned memory in the background, in
//! the order in which it came back. It hands out clear memory first, so a request waits only if that does not
//! suffice. Then it looks again at intervals, until enough is clear.

/// How fast a device clears returned memory. By default at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clearing {
    /// Nanoseconds for a MiB.
    pub ns_per_mib: u64,
    /// Nanoseconds after which a request that waits looks again.
    pub interval_ns: u64,
}

/// The memory of a device that is not in use.
///
/// Invariant: what is neither `clear` nor `returned` is in use.
#[derive(Debug)]
pub(super) struct Returned {
    clearing: Clearing,
    /// Bytes that can be handed out.
    clear: u64,
    /// Bytes to be cleared.
    returned: u64,
    /// Nanoseconds on the clock up to which the clearing is accounted for.
    cleared_until_ns: u64,
}

impl Returned {
    /// The memory of an unused device of `capacity` bytes.
    pub(super) fn new(clearing: Clearing, capacity: u64) -> Self {
        Self {
            clearing,
            clear: capacity,
            returned: 0,
            cleared_until_ns: 0,
        }
    }

    /// Adds memory that was in use.
    pub(super) fn give(&mut self, bytes: u64, now_ns: u64) {
        self.clear_until(now_ns);
        self.returned = self.returned.saturating_add(bytes);
    }

    /// Returns the nanoseconds until a request can be served, which then have passed.
    pub(super) fn wait_for(&mut self, bytes: u64, now_ns: u64) -> u64 {
        self.clear_until(now_ns);
        let missing = bytes.saturating_sub(self.clear);
        let waits = self.time_to_clear(missing.min(self.returned));
        self.clear_until(now_ns.saturating_add(waits));
        waits
    }

    /// Takes memory.
    pub(super) fn take(&mut self, bytes: u64) {
        self.clear = self.clear.saturating_sub(bytes);
    }

    /// The nanoseconds until so many returned bytes are clear, in whole intervals.
    fn time_to_clear(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * u128::from(self.clearing.ns_per_mib)).div_ceil(1 << 20);
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        ns.checked_next_multiple_of(self.clearing.interval_ns.max(1))
            .unwrap_or(ns)
    }

    /// Clears what the device can until `now_ns`.
    fn clear_until(&mut self, now_ns: u64) {
        let ns = now_ns.saturating_sub(self.cleared_until_ns);
        self.cleared_until_ns = self.cleared_until_ns.max(now_ns);
        let bytes = match self.clearing.ns_per_mib {
            0 => self.returned,
            rate => {
                let bytes = (u128::from(ns) << 20) / u128::from(rate);
                u64::try_from(bytes).unwrap_or(u64::MAX).min(self.returned)
            }
        };
        self.returned -= bytes;
        self.clear = self.clear.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// An unused device that clears a MiB in 10 ns, with requests that look every 250 ns.
    fn device(mib: u64) -> Returned {
        let clearing = Clearing {
            ns_per_mib: 10,
            interval_ns: 250,
        };
        Returned::new(clearing, mib * MIB)
    }

    fn take(device: &mut Returned, mib: u64, now_ns: u64) -> u64 {
        let waits = device.wait_for(mib * MIB, now_ns);
        device.take(mib * MIB);
        waits
    }

    #[test]
    fn clear_memory_is_handed_out_first() {
        let device = &mut device(100);
        assert_eq!(take(device, 60, 0), 0);
        device.give(60 * MIB, 0);
        assert_eq!(take(device, 40, 0), 0);
        assert_eq!(take(device, 20, 0), 250, "200 ns, in one interval");
        assert_eq!(take(device, 5, 250), 0, "cleared in the same interval");
        assert_eq!(take(device, 1, 250), 250);
    }

    #[test]
    fn memory_is_cleared_while_time_passes() {
        let device = &mut device(100);
        assert_eq!(take(device, 100, 0), 0);
        device.give(50 * MIB, 1000);
        assert_eq!(take(device, 30, 1300), 0);
        assert_eq!(take(device, 20, 1300), 250);
        device.give(10 * MIB, 2000);
        assert_eq!(take(device, 10, 9000), 0);
    }

    #[test]
    fn a_refused_request_waits_for_all_that_was_returned_and_takes_nothing() {
        let device = &mut device(100);
        assert_eq!(device.wait_for(200 * MIB, 0), 0, "nothing was returned");
        assert_eq!(take(device, 100, 0), 0);
        device.give(50 * MIB, 0);
        assert_eq!(device.wait_for(200 * MIB, 0), 500);
        assert_eq!(take(device, 50, 500), 0);
    }

    #[test]
    fn by_default_nothing_waits() {
        let device = &mut Returned::new(Clearing::default(), MIB);
        assert_eq!(take(device, 1, 0), 0);
        device.give(MIB, 0);
        assert_eq!(take(device, 1, 0), 0);
    }
}
