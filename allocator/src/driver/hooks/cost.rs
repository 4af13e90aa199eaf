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

/// What a call costs, in nanoseconds.
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
}

impl Clock {
    /// No time has passed.
    #[must_use]
    pub fn new(costs: Costs) -> Self {
        Self {
            costs,
            elapsed_ns: 0,
            of: [0; CallKind::COUNT],
        }
    }

    /// Nanoseconds that passed in calls of a kind.
    #[must_use]
    pub fn elapsed_in(&self, kind: CallKind) -> u64 {
        self.of[kind as usize]
    }
}

impl Hook for Clock {
    /// Lets the time pass that a call about `bytes` takes.
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        let ns = self.costs.of(kind).of(bytes);
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
