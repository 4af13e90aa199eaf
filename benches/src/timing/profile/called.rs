//! Snapshots of the calls that the measurements make on a simulated device.

use std::fmt::Write as _;
use std::time::Duration;

use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::{Call, CallKind};
use coalesce_alloc::driver::hooks::clearing::Clearing;
use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::{Hook, Tap};

use super::measure::Effort;
use super::{clearing, contention, measure, table, toml};
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

/// The first calls, of which each is written once with the number of its repetitions.
fn calls<D: Driver>(device: &mut Device<D>) -> String {
    let calls = std::mem::take(&mut device.hook_mut().0);
    let lines: Vec<&str> = calls.lines().collect();
    let groups = lines
        .chunk_by(|one, next| kind_of(one) == kind_of(next))
        .take(400);
    groups
        .map(|group| format!("{} × {}\n", group.len(), group[0]))
        .collect()
}

/// A call without its addresses, which differ from call to call.
fn kind_of(call: &str) -> String {
    let words = call.split(' ').filter(|word| !word.contains("0x"));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn measurements_make_the_recorded_calls() {
    for gib in [80, 5] {
        let mut used = Tap::over(device(gib), Calls::default());
        let costs = measure::measure(&mut used, &clock, EFFORT).unwrap();
        let clearing = clearing::measure(&mut used, &clock, &|_| {}).unwrap();
        let contention = contention::measure(&mut used, &clock).unwrap();
        let results = table(&costs) + &toml("a device", &costs, clearing, contention);
        insta::assert_snapshot!(format!("{gib}_gib"), results + &calls(&mut used));
    }
}

#[test]
fn measurements_of_a_pool_make_the_recorded_calls() {
    for gib in [20, 1] {
        let mut used: Device<Pooled> = Tap::over(Pooled::new(device(gib)), Calls::default());
        let clock = |device: &Device<Pooled>| device.driver().elapsed_ns();
        let costs = measure::measure(&mut used, &clock, EFFORT).unwrap();
        assert!(used.driver().is_unused());
        insta::assert_snapshot!(
            format!("pool_of_{gib}_gib"),
            table(&costs) + &calls(&mut used)
        );
    }
}
