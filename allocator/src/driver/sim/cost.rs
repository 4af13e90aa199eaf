//! What driver calls cost.

use std::time::{Duration, Instant};

use super::calls::CallKind;

/// Nanoseconds of each call, all zero by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    per_call_ns: [u64; CallKind::COUNT],
    /// Whether to wait that long, too, instead of only adding it up.
    pub spin: bool,
}

impl Costs {
    /// Sets what each call of a kind costs, in nanoseconds.
    #[must_use]
    pub fn with(mut self, kind: CallKind, ns: u64) -> Self {
        self.per_call_ns[kind as usize] = ns;
        self
    }
}

/// Simulated time: it passes only in driver calls.
#[derive(Debug)]
pub(super) struct Clock {
    costs: Costs,
    elapsed_ns: u64,
}

impl Clock {
    pub(super) fn new(costs: Costs) -> Self {
        Self {
            costs,
            elapsed_ns: 0,
        }
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    pub(super) fn charge(&mut self, kind: CallKind) {
        let ns = self.costs.per_call_ns[kind as usize];
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        if self.costs.spin && ns > 0 {
            let started = Instant::now();
            while started.elapsed() < Duration::from_nanos(ns) {
                std::hint::spin_loop();
            }
        }
    }
}
