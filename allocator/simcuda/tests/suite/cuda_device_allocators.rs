//! Allocators over the CUDA device and over the simulated device decide the same, to the address.

use std::env;

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::hooks::cost::Costs;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{DeviceAddr, Driver, PoolUsage, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::registry;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::DeviceStats;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::machine::{Machine, counters, device};
use crate::ops::{self, TestOp};

/// An allocator with its live allocations.
struct Side<D> {
    allocator: Box<dyn Allocator<Driver = D>>,
    live: Vec<DeviceAddr>,
}

/// The observable state of an allocator after an operation.
type Observed = (String, DeviceStats, Vec<SegmentInfo>, u64);

impl<D: Driver + 'static> Side<D> {
    fn new(policy: &str, conf: &str, driver: D) -> Self {
        Self {
            allocator: registry::build(policy, driver, conf).unwrap(),
            live: Vec::new(),
        }
    }

    fn step(&mut self, op: &TestOp) -> Observed {
        let outcome = self.perform(op);
        self.allocator.check().unwrap();
        let free = self.allocator.driver_mut().memory_info().unwrap().free;
        (
            format!("{outcome:?}"),
            self.allocator.stats().clone(),
            self.allocator.segments(),
            free,
        )
    }

    fn pool_usage(&mut self) -> PoolUsage {
        let pool = self.allocator.driver_mut().stream_ordered();
        pool.unwrap().pool_usage().unwrap()
    }

    fn perform(&mut self, op: &TestOp) -> Result<DeviceAddr, Error> {
        let allocator = &mut self.allocator;
        let picked = |victim: usize| victim.checked_rem(self.live.len());
        match *op {
            TestOp::Malloc { bytes, stream } => {
                let addr = allocator.malloc(bytes, stream)?;
                self.live.extend((!addr.is_null()).then_some(addr));
                Ok(addr)
            }
            TestOp::Free { victim } => match picked(victim) {
                Some(index) => {
                    let addr = self.live.swap_remove(index);
                    allocator.free(addr).map(|()| addr)
                }
                None => Ok(DeviceAddr::NULL),
            },
            TestOp::RecordStream { victim, stream } => match picked(victim) {
                Some(index) => {
                    let addr = self.live[index];
                    allocator.record_stream(addr, stream).map(|()| addr)
                }
                None => Ok(DeviceAddr::NULL),
            },
            TestOp::EmptyCache => allocator.empty_cache().map(|()| DeviceAddr::NULL),
            TestOp::CompleteEvents { stream, .. } => {
                allocator.driver_mut().synchronize_stream(stream)?;
                Ok(DeviceAddr::NULL)
            }
            _ => Ok(DeviceAddr::NULL),
        }
    }
}

/// Compares a policy on both devices, configured by the environment, on random operations.
fn compare(policy: &str, conf: &str) {
    let config = SimConfig::from_variables("FAKE", |name| env::var(name).ok()).unwrap();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let compared = runner.run(&ops::peaceful(), |ops| {
        let mut simulated = Side::new(policy, conf, SimDevice::new(&config));
        let mut cuda = Side::new(policy, conf, device());
        for op in &ops {
            prop_assert_eq!(cuda.step(op), simulated.step(op), "{:?}", op);
        }
        Ok(())
    });
    compared.unwrap_or_else(|error| panic!("{policy} {conf}: {error}"));
    let counted = counters();
    let left = (
        counted.live_mallocs,
        counted.live_handles,
        counted.live_reservations,
    );
    assert_eq!(left, (0, 0, 0), "dropping the device returned live memory");
}

/// A small device on which work lasts until a call waits for it. Freed addresses are reused, so that
/// each run starts like the first.
const SMALL: [(&str, &str); 4] = [
    ("FAKE_TOTAL_BYTES", "384M"),
    ("FAKE_ADDR", "firstfit"),
    ("FAKE_HOLD_EVENTS", "1"),
    ("FAKE_NO_POOLS", "1"),
];

#[test]
fn the_reference_decides_the_same_on_both_devices() {
    Machine::with(&SMALL).run(|| {
        compare("pytorch", "");
        compare(
            "pytorch",
            "max_split_size_mb:40,garbage_collection_threshold:0.6",
        );
    });
}

#[test]
fn the_reference_decides_the_same_with_expandable_segments() {
    Machine::with(&SMALL).run(|| compare("pytorch", "expandable_segments:True"));
}

#[test]
fn other_policies_decide_the_same_on_both_devices() {
    Machine::with(&SMALL).run(|| {
        for policy in [
            "direct",
            "bfc",
            "rmm_pool",
            "cupy",
            "gmlake",
            "vpmm",
            "cuda_async",
        ] {
            compare(policy, "");
        }
    });
}

/// The decisions of the pool are unknown, but live blocks do not exceed reserved memory, and all
/// memory can be returned.
#[test]
fn the_pool_of_the_device_keeps_its_promises() {
    Machine::with(&SMALL[..3]).run(|| {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 24,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let kept = runner.run(&ops::peaceful(), |ops| {
            let mut side = Side::new("cuda_async", "", device());
            for op in &ops {
                side.step(op);
                let stats = side.allocator.stats();
                let (allocated, reserved) =
                    (stats.allocated_bytes.all(), stats.reserved_bytes.all());
                prop_assert!(allocated.current <= reserved.current, "{:?}", op);
                let usage = side.pool_usage();
                prop_assert_eq!(usage.used.cast_signed(), allocated.current);
                prop_assert!(usage.reserved_peak.cast_signed() <= reserved.peak);
            }
            for addr in std::mem::take(&mut side.live) {
                side.allocator.free(addr).unwrap();
            }
            side.allocator.empty_cache().unwrap();
            prop_assert_eq!(side.allocator.stats().reserved_bytes.all().current, 0);
            let info = side.allocator.driver_mut().memory_info().unwrap();
            prop_assert_eq!(info.free, info.total);
            Ok(())
        });
        kept.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// The free is queued on a stream that waits for all users of the block; no other stream waits.
#[test]
fn memory_used_by_other_streams_returns_to_the_pool_when_they_finish() {
    Machine::with(&SMALL[..3]).run(|| {
        let (own, user) = (StreamId::nth(1), StreamId::nth(2));
        let device = Tap::over(device(), Instruments::new(Costs::default(), 0));
        let conf = "reuse_internal_dependencies:false";
        let mut allocator = registry::build("cuda_async", device, conf).unwrap();
        let block = allocator.malloc(20 << 20, own).unwrap();
        allocator.record_stream(block, user).unwrap();
        allocator.driver_mut().set_logging(true);
        allocator.free(block).unwrap();
        let stream = allocator
            .driver_mut()
            .stream_ordered()
            .unwrap()
            .free_stream()
            .unwrap();
        let stream = format!("stream={:#x}", stream.0);
        let log: Vec<String> = allocator
            .driver_mut()
            .take_log()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = [
            "event_record stream=0x2000".to_owned(),
            "event_record stream=0x1000".to_owned(),
            format!("event_wait {stream}"),
            format!("event_wait {stream}"),
            format!("pool_free {block} {stream}"),
        ];
        assert_eq!(log, expected);
        let next = allocator.malloc(20 << 20, own).unwrap();
        assert_ne!(next, block, "the next request does not wait for the block");
    });
}
