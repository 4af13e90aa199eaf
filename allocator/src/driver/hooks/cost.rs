//! What driver calls cost: as much when they are refused.

use std::time::{Duration, Instant};

use crate::driver::DriverError;
use crate::driver::calls::CallKind;
use crate::driver::tap::Hook;

/// What each call costs, nothing by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    per_call: [Cost; CallKind::COUNT],
    /// Whether to wait that long, too, instead of only adding it up.
    pub spin: bool,
}

/// What a call costs, in nanoseconds. Giving access to several mappings at once costs as much as to each on
/// its own: so it was measured on an H200 (driver 580), where 139 such calls for 685 mappings took 19 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Whatever it is about.
    pub ns: u64,
    /// For each MiB that it is about.
    pub ns_per_mib: u64,
}

impl Cost {
    /// Nanoseconds for a call about `bytes`.
    #[must_use]
    pub fn of(self, bytes: u64) -> u64 {
        let of_bytes = (u128::from(self.ns_per_mib) * u128::from(bytes)) >> 20;
        let of_bytes = u64::try_from(of_bytes).unwrap_or(u64::MAX);
        self.ns.saturating_add(of_bytes)
    }
}

impl Costs {
    /// Sets what each call of a kind costs.
    #[must_use]
    pub fn with(mut self, kind: CallKind, cost: Cost) -> Self {
        self.per_call[kind as usize] = cost;
        self
    }

    /// What a call of a kind costs.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> Cost {
        self.per_call[kind as usize]
    }
}

/// Simulated time: it passes only in driver calls.
#[derive(Debug)]
pub struct Clock {
    costs: Costs,
    /// Nanoseconds in all.
    elapsed_ns: u64,
    /// Of each kind of call.
    of: [u64; CallKind::COUNT],
    /// Mappings that were made since access was given last: the next call gives it to them.
    without_access: u64,
}

impl Clock {
    /// No time has passed.
    #[must_use]
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            elapsed_ns: 0,
            of: [0; CallKind::COUNT],
            without_access: 0,
        }
    }

    /// Nanoseconds that passed in calls of a kind.
    #[must_use]
    pub fn elapsed_in(&self, kind: CallKind) -> u64 {
        self.of[kind as usize]
    }

    /// What a call about `bytes` costs now.
    fn charge(&mut self, kind: CallKind, bytes: u64) -> u64 {
        let cost = self.costs.of(kind);
        match kind {
            CallKind::Map => self.without_access += 1,
            CallKind::SetAccess => {
                let others = std::mem::take(&mut self.without_access).saturating_sub(1);
                return cost
                    .of(bytes)
                    .saturating_add(cost.ns.saturating_mul(others));
            }
            _ => {}
        }
        cost.of(bytes)
    }
}

impl Hook for Clock {
    /// Lets the time pass that a call about `bytes` takes.
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        let ns = self.charge(kind, bytes);
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        let of = &mut self.of[kind as usize];
        *of = of.saturating_add(ns);
        if self.costs.spin && ns > 0 {
            let started = Instant::now();
            while started.elapsed() < Duration::from_nanos(ns) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_charged_for_each_mapping_and_each_mib() {
        let cost = Cost {
            ns: 100,
            ns_per_mib: 1,
        };
        let mut clock = Clock::new(Costs::default().with(CallKind::SetAccess, cost));
        let mut access_to = |mappings: u64| {
            let before = clock.elapsed_ns();
            (0..mappings).for_each(|_| clock.before(CallKind::Map, 2 << 20).unwrap());
            clock
                .before(CallKind::SetAccess, (2 * mappings) << 20)
                .unwrap();
            clock.elapsed_ns() - before
        };
        assert_eq!([access_to(3), access_to(1), access_to(0)], [306, 102, 100]);
    }
}
