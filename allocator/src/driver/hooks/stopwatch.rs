//! The measured time of driver calls, on the host's clock.

use std::time::{Duration, Instant};

use crate::driver::Status;
use crate::driver::calls::CallKind;
use crate::driver::tap::Hook;

/// Times every call, including refused ones. As the hook closest to the driver it times only the call.
#[derive(Debug)]
pub struct Stopwatch {
    of: [Duration; CallKind::COUNT],
    /// Start of the current call.
    begun: Instant,
}

impl Default for Stopwatch {
    fn default() -> Self {
        Self {
            of: [Duration::ZERO; CallKind::COUNT],
            begun: Instant::now(),
        }
    }
}

impl Stopwatch {
    /// Returns the total time of a kind of call.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> Duration {
        self.of[kind as usize]
    }

    /// Returns the total time of all calls.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.of.iter().sum()
    }
}

impl Hook for Stopwatch {
    fn before(&mut self, _: CallKind, _: u64) -> Status {
        self.begun = Instant::now();
        Ok(())
    }

    fn over(&mut self, kind: CallKind) {
        self.of[kind as usize] += self.begun.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;
    use crate::driver::hooks::cost::{Cost, Costs};
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::tap::Tap;

    /// A device that spins for the cost of its calls takes at least that long.
    #[test]
    fn refused_calls_are_timed() {
        let ns = 20_000;
        let mut costs = Costs::default().with(CallKind::Malloc, Cost { ns, ns_per_mib: 0 });
        costs.spin = true;
        let device = SimDevice::new(&SimConfig {
            costs,
            ..SimConfig::with_capacity(4 << 20)
        });
        let mut device = Tap::over(device, Stopwatch::default());
        assert!(device.malloc(1 << 20).is_ok());
        let once = device.hook().of(CallKind::Malloc);
        assert!(once >= Duration::from_nanos(ns));
        assert!(device.malloc(4 << 20).is_err());
        let twice = device.hook().of(CallKind::Malloc);
        assert!(twice >= once + Duration::from_nanos(ns));
        assert_eq!(device.hook().of(CallKind::Free), Duration::ZERO);
        assert_eq!(device.hook().total(), twice);
    }
}
