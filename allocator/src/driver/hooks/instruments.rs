//! What every simulated device comes with: a count and a log of its calls, a clock that they cost time
//! on, and failures to order.

use super::cost::{Clock, Costs};
use super::faults::Faults;
use crate::driver::DriverError;
use crate::driver::calls::{Call, CallCounts, CallKind};
use crate::driver::tap::{Hook, Tap};

/// Counts every call, charges for it, and only then lets it fail: a call that fails costs as much.
#[derive(Debug)]
pub struct Instruments {
    counts: CallCounts,
    clock: Clock,
    faults: Faults,
    log: Option<Vec<Call>>,
}

impl Instruments {
    /// Nothing counted, no failures to come, no log; calls cost as much as `costs` says.
    #[must_use]
    pub fn new(costs: Costs) -> Self {
        Self {
            counts: CallCounts::default(),
            clock: Clock::new(costs),
            faults: Faults::default(),
            log: None,
        }
    }
}

impl Hook for Instruments {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        self.counts.add(kind);
        self.clock.before(kind, bytes)?;
        self.faults.before(kind, bytes)
    }

    fn after(&mut self, call: &Call) {
        if let Some(log) = &mut self.log {
            log.push(*call);
        }
    }

    fn last_error(&self) -> Result<(), DriverError> {
        self.faults.last_error()
    }

    fn elapsed_ns(&self) -> u64 {
        self.clock.elapsed_ns()
    }
}

impl<D> Tap<D, Instruments> {
    /// The failures to come.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.hook_mut().faults
    }

    /// How often each call was made, failed ones included.
    #[must_use]
    pub fn counts(&self) -> &CallCounts {
        &self.hook().counts
    }

    /// Nanoseconds that all calls so far have cost.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.hook().elapsed_ns()
    }

    /// Nanoseconds that calls of a kind have cost.
    #[must_use]
    pub fn elapsed_in(&self, kind: CallKind) -> u64 {
        self.hook().clock.elapsed_in(kind)
    }

    /// Starts or stops writing down the calls that change something.
    pub fn set_logging(&mut self, on: bool) {
        self.hook_mut().log = on.then(Vec::new);
    }

    /// Takes what was written down since the last time.
    pub fn take_log(&mut self) -> Vec<Call> {
        let mut log = Vec::new();
        self.swap_log(&mut log);
        log
    }

    /// Takes what was written down since the last time; what `log` has is forgotten, its room is used
    /// next.
    pub fn swap_log(&mut self, log: &mut Vec<Call>) {
        log.clear();
        if let Some(written) = &mut self.hook_mut().log {
            std::mem::swap(written, log);
        }
    }
}
