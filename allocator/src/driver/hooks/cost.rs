//! The simulated cost of driver calls. A refused call costs as much as a successful one.
//!
//! Calls wait for kernels as on an H100 and an H200 with driver 580: `cudaFree` waits for all kernels, as
//! `cudaDeviceSynchronize` does; no other call for memory waits.

use std::fmt;
use std::time::{Duration, Instant};

use super::clearing::{Clearing, Returned};
use crate::driver::calls::{Call, CallKind};
use crate::driver::tap::Hook;
use crate::driver::work::{Kernel, Timeline};
use crate::driver::{Status, StreamId};

/// The cost of each kind of call, zero by default.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Costs {
    per_call: [Cost; CallKind::COUNT],
    /// How fast returned memory is cleared, which a request for memory may have to wait for.
    pub clearing: Clearing,
    /// By how many percent a call takes longer while kernels run, besides waiting for them.
    pub contention_percent: u64,
    /// Whether to wait that long instead of only adding it up.
    pub spin: bool,
}

/// The cost of a call in nanoseconds. `set_access` costs the same for each mapping, whether one call covers
/// one mapping or several: on an H200 (driver 580), 139 calls for 685 mappings took 19 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Per call.
    pub ns: u64,
    /// Per MiB.
    pub ns_per_mib: u64,
}

impl Cost {
    /// Returns the nanoseconds of a call for `bytes`.
    #[must_use]
    pub fn of(self, bytes: u64) -> u64 {
        let for_bytes = (u128::from(self.ns_per_mib) * u128::from(bytes)) >> 20;
        let for_bytes = u64::try_from(for_bytes).unwrap_or(u64::MAX);
        self.ns.saturating_add(for_bytes)
    }
}

/// Leaves out clearing and contention if there are none. The text is part of what identifies a recorded sweep, and sweeps
/// were recorded before costs had these two.
impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut costs = f.debug_struct("Costs");
        costs.field("per_call", &self.per_call);
        if self.clearing != Clearing::default() {
            costs.field("clearing", &self.clearing);
        }
        if self.contention_percent > 0 {
            costs.field("contention_percent", &self.contention_percent);
        }
        costs.field("spin", &self.spin).finish()
    }
}

impl Costs {
    /// Sets the cost of a kind of call.
    #[must_use]
    pub fn with(mut self, kind: CallKind, cost: Cost) -> Self {
        self.per_call[kind as usize] = cost;
        self
    }

    /// Returns the cost of a kind of call.
    #[must_use]
    pub fn of(&self, kind: CallKind) -> Cost {
        self.per_call[kind as usize]
    }
}

/// A simulated clock that advances only in driver calls and when kernels are submitted.
#[derive(Debug)]
pub struct Clock {
    costs: Costs,
    /// Nanoseconds in total.
    elapsed_ns: u64,
    /// Nanoseconds by kind of call.
    of: [u64; CallKind::COUNT],
    returned: Returned,
    timeline: Timeline,
    /// Mappings made since the last `set_access`, which the next one covers.
    without_access: u64,
}

impl Clock {
    /// A clock at zero, of a device with so many free bytes, all of them clear.
    #[must_use]
    pub fn new(costs: Costs, free: u64) -> Self {
        Self {
            returned: Returned::new(costs.clearing, free),
            costs,
            elapsed_ns: 0,
            timeline: Timeline::default(),
            of: [0; CallKind::COUNT],
            without_access: 0,
        }
    }

    /// Returns the nanoseconds spent in a kind of call.
    #[must_use]
    pub fn elapsed_in(&self, kind: CallKind) -> u64 {
        self.of[kind as usize]
    }

    /// Returns the cost of a call for `bytes` made now.
    fn charge(&mut self, kind: CallKind, bytes: u64) -> u64 {
        let own = self.cost(kind, bytes);
        let busy = self.timeline.over().saturating_sub(self.elapsed_ns);
        let delayed = match busy {
            0 => 0,
            _ => own.saturating_mul(self.costs.contention_percent) / 100,
        };
        let waits = match kind {
            CallKind::Free | CallKind::SynchronizeDevice => busy,
            CallKind::Malloc | CallKind::Create => self.returned.wait_for(bytes, self.elapsed_ns),
            _ => 0,
        };
        if let CallKind::Free | CallKind::Release = kind {
            let returned_ns = self.elapsed_ns.saturating_add(waits);
            self.returned.give(bytes, returned_ns);
        }
        own.saturating_add(delayed).saturating_add(waits)
    }

    /// The cost of a call on an idle device.
    fn cost(&mut self, kind: CallKind, bytes: u64) -> u64 {
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

    /// Adds the time of a call.
    fn advance(&mut self, kind: CallKind, ns: u64) {
        self.elapsed_ns = self.elapsed_ns.saturating_add(ns);
        let of = &mut self.of[kind as usize];
        *of = of.saturating_add(ns);
        if self.costs.spin && ns > 0 {
            let started = Instant::now();
            while started.elapsed() < Duration::from_nanos(ns) {
                std::hint::spin_loop();
            }
        }
    }

    /// Waits in a call for the work of a stream.
    fn wait_for(&mut self, kind: CallKind, stream: StreamId) {
        let waits = self.timeline.until(stream).saturating_sub(self.elapsed_ns);
        self.advance(kind, waits);
    }
}

impl Hook for Clock {
    /// Advances the clock by the cost of the call.
    fn before(&mut self, kind: CallKind, bytes: u64) -> Status {
        let ns = self.charge(kind, bytes);
        self.advance(kind, ns);
        Ok(())
    }

    fn after(&mut self, call: &Call) {
        match *call {
            Call::Malloc { bytes, .. } | Call::Create { bytes, .. } => self.returned.take(bytes),
            Call::SynchronizeStream { stream } => {
                self.wait_for(CallKind::SynchronizeStream, stream);
            }
            // Later work of the stream counts as well.
            Call::SynchronizeEvent { stream } => self.wait_for(CallKind::SynchronizeEvent, stream),
            _ => {}
        }
    }

    fn submit(&mut self, kernel: Kernel) {
        self.timeline.submit(Kernel {
            submitted_ns: self.elapsed_ns,
            ..kernel
        });
        self.elapsed_ns = self.elapsed_ns.saturating_add(kernel.host_ns);
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
        let mut clock = Clock::new(Costs::default().with(CallKind::SetAccess, cost), 0);
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

    #[test]
    fn a_call_waits_for_the_kernels_that_the_driver_waits_for() {
        use crate::driver::sim::{SimConfig, SimDevice};
        use crate::driver::work::Work;
        use crate::driver::{Driver, StreamId};
        let mut device = SimDevice::new(&SimConfig::default());
        let kernel = |stream, ns| Kernel {
            stream: StreamId::nth(stream),
            ns,
            host_ns: 10,
            submitted_ns: 0,
        };
        let addr = device.malloc(1).unwrap();
        device.submit(kernel(1, 100)).unwrap();
        device.submit(kernel(1, 100)).unwrap();
        device.submit(kernel(2, 500)).unwrap();
        let other = device.malloc(1).unwrap();
        assert_eq!(device.elapsed_ns(), 30, "a request does not wait");
        device.synchronize_stream(StreamId::nth(1)).unwrap();
        assert_eq!(device.elapsed_ns(), 200, "one kernel after the other");
        device.free(addr, 1).unwrap();
        assert_eq!(device.elapsed_ns(), 520, "all streams");
        assert_eq!(device.elapsed_in(CallKind::Free), 320);
        device.free(other, 1).unwrap();
        device.submit(kernel(2, 80)).unwrap();
        device.synchronize_device().unwrap();
        assert_eq!(device.elapsed_ns(), 600);
        assert_eq!(device.elapsed_in(CallKind::SynchronizeDevice), 70);
    }

    #[test]
    fn a_call_takes_longer_while_kernels_run() {
        let cost = Cost {
            ns: 100,
            ns_per_mib: 1,
        };
        let mut costs = Costs::default().with(CallKind::Malloc, cost);
        costs.contention_percent = 25;
        let mut clock = Clock::new(costs, 0);
        let mut request = || {
            let before = clock.elapsed_ns();
            clock.submit(Kernel {
                stream: StreamId::DEFAULT,
                ns: 200,
                host_ns: 0,
                submitted_ns: 0,
            });
            clock.before(CallKind::Malloc, 20 << 20).unwrap();
            clock.before(CallKind::Malloc, 20 << 20).unwrap();
            clock.before(CallKind::Malloc, 20 << 20).unwrap();
            clock.elapsed_ns() - before
        };
        // The third request finds the device idle.
        assert_eq!(request(), 150 + 150 + 120);
    }

    #[test]
    fn a_request_waits_for_memory_that_was_just_returned() {
        use crate::driver::Driver;
        use crate::driver::sim::{SimConfig, SimDevice};
        let mut costs = Costs::default().with(
            CallKind::Malloc,
            Cost {
                ns: 1000,
                ns_per_mib: 0,
            },
        );
        costs.clearing = Clearing {
            ns_per_mib: 50,
            interval_ns: 0,
        };
        let mut device = SimDevice::new(&SimConfig {
            costs,
            ..SimConfig::with_capacity(100 << 20)
        });
        let addr = device.malloc(60 << 20).unwrap();
        device.free(addr, 60 << 20).unwrap();
        assert_eq!(device.elapsed_ns(), 1000);
        device.malloc(40 << 20).unwrap();
        assert_eq!(device.elapsed_ns(), 2000, "40 MiB were not used yet");
        // Of the 60 MiB, 20 were cleared in the last call.
        assert!(device.malloc(60 << 20).is_ok());
        assert_eq!(device.elapsed_ns(), 5000);
    }
}
