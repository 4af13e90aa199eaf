//! The hook of every simulated device: counts and logs calls, advances a clock, and injects failures.

use super::cost::{Clock, Costs};
use super::faults::Faults;
use crate::driver::Status;
use crate::driver::calls::{Call, CallCounts, CallKind};
use crate::driver::tap::{Hook, Tap};
use crate::driver::work::Kernel;

/// Counts and charges calls before they may fail, so that a failed call costs as much.
#[derive(Debug)]
pub struct Instruments {
    counts: CallCounts,
    clock: Clock,
    faults: Faults,
    log: Option<Vec<Call>>,
    /// See [`Driver::charge_calls`](crate::driver::Driver::charge_calls).
    charges_calls: bool,
}

impl Instruments {
    /// Starts with zero counts, no planned failure and no log, on a device with so many free bytes.
    #[must_use]
    pub fn new(costs: Costs, free: u64) -> Self {
        Self {
            counts: CallCounts::default(),
            clock: Clock::new(costs, free),
            faults: Faults::default(),
            log: None,
            charges_calls: true,
        }
    }
}

impl Hook for Instruments {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Status {
        if !self.charges_calls {
            return Ok(());
        }
        self.counts.add(kind);
        self.clock.before(kind, bytes)?;
        self.faults.before(kind, bytes)
    }

    fn charge_calls(&mut self, on: bool) {
        self.charges_calls = on;
    }

    fn after(&mut self, call: &Call) {
        self.clock.after(call);
        if let Some(log) = &mut self.log {
            log.push(*call);
        }
    }

    fn submit(&mut self, kernel: Kernel) {
        self.clock.submit(kernel);
    }

    fn last_error(&self) -> Status {
        self.faults.last_error()
    }

    fn elapsed_ns(&self) -> u64 {
        self.clock.elapsed_ns()
    }
}

impl<D> Tap<D, Instruments> {
    /// The planned failures.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.hook_mut().faults
    }

    /// The number of calls by kind, including failed ones.
    #[must_use]
    pub fn counts(&self) -> &CallCounts {
        &self.hook().counts
    }

    /// Returns the total cost of all calls in nanoseconds.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.hook().elapsed_ns()
    }

    /// Returns the cost of a kind of call in nanoseconds.
    #[must_use]
    pub fn elapsed_in(&self, kind: CallKind) -> u64 {
        self.hook().clock.elapsed_in(kind)
    }

    /// Starts or stops the log of calls that change the device.
    pub fn set_logging(&mut self, on: bool) {
        self.hook_mut().log = on.then(Vec::new);
    }

    /// Takes the calls logged since the last time.
    pub fn take_log(&mut self) -> Vec<Call> {
        let mut log = Vec::new();
        self.swap_log(&mut log);
        log
    }

    /// Takes the calls logged since the last time. The contents of `log` are dropped; its capacity is
    /// reused.
    pub fn swap_log(&mut self, log: &mut Vec<Call>) {
        log.clear();
        if let Some(written) = &mut self.hook_mut().log {
            std::mem::swap(written, log);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::{Driver, StreamId, uncharged};

    use super::super::cost::Cost;
    use super::*;

    #[test]
    fn uncharged_calls_are_logged_but_neither_counted_nor_charged() {
        let cost = Cost {
            ns: 100,
            ns_per_mib: 0,
        };
        let mut device = SimDevice::new(&SimConfig {
            costs: Costs::default().with(CallKind::RecordEvent, cost),
            ..SimConfig::default()
        });
        device.set_logging(true);
        let stream = StreamId::DEFAULT;
        let event = device.create_event().unwrap();
        uncharged(&mut device, |device| device.record_event(event, stream)).unwrap();
        assert_eq!(device.elapsed_ns(), 0);
        assert_eq!(device.counts().of(CallKind::RecordEvent), 0);
        device.record_event(event, stream).unwrap();
        assert_eq!(device.elapsed_ns(), 100);
        assert_eq!(device.counts().of(CallKind::RecordEvent), 1);
        assert_eq!(device.take_log(), [Call::RecordEvent { stream }; 2]);
    }
}
