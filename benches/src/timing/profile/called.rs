//! Fingerprints of the calls that the measurements make on a simulated device.
//!
//! A fingerprint that differs says that some call, size, number or result differs. If that is intended, write the new one here.

use std::fmt::Write as _;
use std::time::Duration;

use coalesce_alloc::driver::calls::{Call, CallKind};
use coalesce_alloc::driver::hooks::clearing::Clearing;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::{Hook, Tap};

use super::measure::Effort;
use super::{clearing, contention, measure, table, toml};
use crate::report::invented::fingerprint;
use crate::timing::pooled::Pooled;

/// All calls in order, as text.
#[derive(Default)]
struct Calls(String);

impl Hook for Calls {
    fn after(&mut self, call: &Call) {
        writeln!(self.0, "{call}").unwrap();
    }
}

type Device<D = SimDevice> = Tap<D, Calls>;

/// Every kind of call takes a time of its own.
fn device(gib: u64) -> SimDevice {
    let mut costs = Costs::default();
    for (kind, ns) in CallKind::ALL.into_iter().zip((1000..).step_by(130)) {
        let ns_per_mib = ns / 100;
        costs = costs.with(kind, Cost { ns, ns_per_mib });
    }
    costs.contention_percent = 25;
    costs.clearing = Clearing {
        ns_per_mib: 2500,
        interval_ns: 8_000_000,
    };
    let config = SimConfig {
        costs,
        ..SimConfig::with_capacity(gib << 30)
    };
    SimDevice::new(&config)
}

const EFFORT: Effort = Effort {
    rounds: 4,
    time: Duration::from_secs(60),
    rest_per_gib: Duration::ZERO,
    touched: 1 << 12,
};

fn clock(device: &Device) -> u64 {
    device.driver().elapsed_ns()
}

#[test]
fn measurements_make_the_recorded_calls() {
    let effort = EFFORT;
    let fingerprints = [80, 5].map(|gib| {
        let mut used = Tap::over(device(gib), Calls::default());
        let costs = measure::measure(&mut used, &clock, effort).unwrap();
        let clearing = clearing::measure(&mut used, &clock, &|_| {}).unwrap();
        let contention = contention::measure(&mut used, &clock).unwrap();
        let results = format!(
            "{costs:?} {}",
            toml("a device", &costs, clearing, contention)
        );
        let calls = std::mem::take(&mut used.hook_mut().0);
        fingerprint([calls, results].into_iter())
    });
    assert_eq!(fingerprints, ["6a481651401cc4a7", "05da1b4a73c8c804"]);
}

#[test]
fn measurements_of_a_pool_make_the_recorded_calls() {
    let fingerprints = [20, 1].map(|gib| {
        let mut used: Device<Pooled> = Tap::over(Pooled::new(device(gib)), Calls::default());
        let clock = |device: &Device<Pooled>| device.driver().elapsed_ns();
        let costs = measure::measure(&mut used, &clock, EFFORT).unwrap();
        assert!(used.driver().is_unused());
        let calls = std::mem::take(&mut used.hook_mut().0);
        fingerprint([calls, table(&costs)].into_iter())
    });
    assert_eq!(fingerprints, ["b2db41fa79148345", "18bd605498562b6b"]);
}
