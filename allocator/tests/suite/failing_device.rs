//! The device breaks in the middle of a call, so that even the cleanup fails. Once it works again, no
//! memory is lost.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{PyTorch, registry};

use crate::harness::DynAllocator;

const MIB: u64 = 1 << 20;
const CONFS: [&str; 2] = ["", "expandable_segments:True"];

fn allocator(conf: &str) -> DynAllocator {
    of_release(Release::DEFAULT, conf)
}

fn of_release(release: Release, conf: &str) -> DynAllocator {
    let device = SimDevice::new(&SimConfig::with_capacity(1024 * MIB));
    let settings = Settings::of_release(release).started_with(conf);
    Box::new(PyTorch::new(device, settings.unwrap()))
}

fn malloc(allocator: &mut DynAllocator, mib: u64) -> Result<DeviceAddr, Error> {
    allocator.malloc(mib * MIB, StreamId::DEFAULT)
}

/// How a device fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// At one call.
    Once,
    /// At one call and all that follow.
    FromThenOn,
}

/// Runs `call` on a device that fails after 0, 1, 2, … driver calls, each time on a new allocator from `build` and
/// `prepare`, until `call` makes fewer driver calls. `recover` may continue after each failure. Returns the number of driver
/// calls.
fn fail_everywhere<T>(
    failure: Failure,
    build: impl Fn() -> DynAllocator,
    prepare: impl Fn(&mut DynAllocator) -> T,
    call: impl Fn(&mut DynAllocator, &T) -> Result<(), Error>,
    recover: impl Fn(&mut DynAllocator, T),
) -> u64 {
    for after in 0.. {
        let mut allocator = build();
        let prepared = prepare(&mut allocator);
        let error = DriverError::Failed("broken".to_owned());
        let faults = allocator.driver_mut().faults_mut();
        match failure {
            Failure::Once => faults.fail_after(after, error),
            Failure::FromThenOn => faults.break_after(after, error),
        }
        let outcome = call(&mut allocator, &prepared);
        allocator.driver_mut().faults_mut().set_sticky(None);
        if allocator.driver_mut().faults_mut().cancel() {
            outcome.unwrap();
            return after;
        }
        let is_told = matches!(outcome, Err(Error::Driver(_) | Error::VirtualMemory(_)));
        assert!(is_told, "{failure:?}, after {after} calls: {outcome:?}");
        allocator.check().unwrap();
        recover(&mut allocator, prepared);
        allocator.empty_cache().unwrap();
        allocator.check().unwrap();
        let device = allocator.driver();
        let left = (device.used(), device.reserved_addresses());
        assert_eq!(left, (0, 0), "{failure:?}, after {after} calls");
    }
    unreachable!("every call ends")
}

/// The reference on a device that breaks. The call makes so many driver calls under each of [`CONFS`].
fn break_everywhere<T>(
    calls: [u64; 2],
    prepare: impl Fn(&mut DynAllocator) -> T,
    call: impl Fn(&mut DynAllocator, &T) -> Result<(), Error>,
    recover: impl Fn(&mut DynAllocator, T),
) {
    for (conf, calls) in CONFS.into_iter().zip(calls) {
        let build = || allocator(conf);
        let reached = fail_everywhere(Failure::FromThenOn, build, &prepare, &call, &recover);
        assert_eq!(reached, calls, "{conf}");
    }
}

#[test]
fn memory_half_allocated() {
    break_everywhere(
        [1, 12],
        |_| (),
        |allocator, ()| malloc(allocator, 90).map(drop),
        |allocator, ()| {
            let addr = malloc(allocator, 90).unwrap();
            allocator.free(addr).unwrap();
        },
    );
}

#[test]
fn memory_half_allocated_behind_memory_in_use() {
    break_everywhere(
        [1, 9],
        |allocator| malloc(allocator, 30).unwrap(),
        |allocator, _| malloc(allocator, 90).map(drop),
        |allocator, live| allocator.free(live).unwrap(),
    );
}

/// Also if the device fails at one call only: the error is told, even if the rest of the work succeeds.
#[test]
fn memory_half_released() {
    for failure in [Failure::Once, Failure::FromThenOn] {
        for (conf, calls) in CONFS.into_iter().zip([1, 12]) {
            let reached = fail_everywhere(
                failure,
                || allocator(conf),
                |allocator| {
                    let live = malloc(allocator, 90).unwrap();
                    allocator.free(live).unwrap();
                },
                |allocator, ()| allocator.empty_cache(),
                |_, ()| {},
            );
            assert_eq!(reached, calls, "{failure:?} {conf}");
        }
    }
}

#[test]
fn events_half_recorded() {
    break_everywhere(
        [6, 6],
        |allocator| {
            let live = malloc(allocator, 90).unwrap();
            for stream in 1..4 {
                allocator
                    .record_stream(live, StreamId::nth(stream))
                    .unwrap();
            }
            live
        },
        |allocator, &live| allocator.free(live),
        |allocator, live| {
            let found = allocator.free(live);
            assert_eq!(found, Err(Error::InvalidPointer(live)), "already freed");
        },
    );
}

#[test]
fn events_half_waited_for() {
    break_everywhere(
        [4, 15],
        |allocator| {
            allocator.driver_mut().streams_mut().set_hold(true);
            let live = malloc(allocator, 90).unwrap();
            for stream in 1..4 {
                allocator
                    .record_stream(live, StreamId::nth(stream))
                    .unwrap();
            }
            allocator.free(live).unwrap();
        },
        |allocator, ()| allocator.empty_cache(),
        |_, ()| {},
    );
}

/// A policy on a device whose events stay pending or not.
fn of_policy(policy: &str, conf: &str, hold_events: bool) -> DynAllocator {
    let device = SimDevice::new(&SimConfig {
        hold_events,
        ..SimConfig::with_capacity(1024 * MIB)
    });
    registry::build(policy, device, conf).unwrap()
}

#[test]
fn memory_half_stitched() {
    for failure in [Failure::Once, Failure::FromThenOn] {
        let reserved = |allocator: &DynAllocator| allocator.stats().reserved_bytes.all().current;
        let reached = fail_everywhere(
            failure,
            || of_policy("gmlake", "frag_limit:4MiB", false),
            |allocator| {
                for addr in [10, 10].map(|mib| malloc(allocator, mib).unwrap()) {
                    allocator.free(addr).unwrap();
                }
            },
            |allocator, ()| malloc(allocator, 20).map(drop),
            |allocator, ()| {
                assert_eq!(reserved(allocator), 20 << 20);
                let stitched = malloc(allocator, 20).unwrap();
                assert_eq!(reserved(allocator), 20 << 20);
                allocator.free(stitched).unwrap();
            },
        );
        assert_eq!(reached, 1 + 2 * 10, "reserve, then map and set access");
    }
}

#[test]
fn pages_half_mapped_again() {
    for failure in [Failure::Once, Failure::FromThenOn] {
        let reached = fail_everywhere(
            failure,
            || of_policy("vpmm", "va_size:16MiB", true),
            |allocator| {
                let other = StreamId::nth(1);
                let [first, pin] = [4, 2].map(|mib| allocator.malloc(mib * MIB, other).unwrap());
                allocator.free(first).unwrap();
                pin
            },
            |allocator, _| malloc(allocator, 8).map(drop),
            |allocator, pin| {
                let again = malloc(allocator, 8).unwrap();
                allocator.check().unwrap();
                let reserved = allocator.stats().reserved_bytes.all().current;
                assert_eq!(reserved, 10 << 20);
                allocator.free(again).unwrap();
                allocator.free(pin).unwrap();
                allocator.driver_mut().streams_mut().complete_all();
            },
        );
        // New pages, their access and event, then a query, a wait, and old pages.
        assert_eq!(reached, (2 * 2 + 3) + 2 + (2 + 3));
    }
}

/// PyTorch first requests memory that fabric can share. On a device without fabric the first such call
/// fails, and PyTorch requests memory by file descriptor from then on.
#[test]
fn a_device_without_fabric_is_asked_for_memory_by_file_descriptor() {
    for release in [v2(12), v2(13)] {
        let mut allocator = of_release(release, "expandable_segments:True");
        fail_second_call(&mut allocator); // the first reserves addresses
        let live = malloc(&mut allocator, 90).unwrap();
        assert_eq!(allocator.stats().num_alloc_retries, 0);
        // Another failure is not a lack of memory.
        fail_second_call(&mut allocator);
        let error = malloc(&mut allocator, 90).unwrap_err();
        assert!(matches!(error, Error::VirtualMemory(_)), "{error}");
        allocator.free(live).unwrap();
        allocator.check().unwrap();
    }
}

/// Until 2.12, any failure to get memory counts as a lack of memory after fabric has worked once. From 2.13
/// on it is an error.
#[test]
fn a_failure_with_fabric_counts_as_a_lack_of_memory() {
    let mut newer = of_release(v2(13), "expandable_segments:True");
    malloc(&mut newer, 90).unwrap();
    fail_second_call(&mut newer);
    let error = malloc(&mut newer, 90).unwrap_err();
    assert!(matches!(error, Error::VirtualMemory(_)), "{error}");
    newer.check().unwrap();

    let mut allocator = of_release(v2(12), "expandable_segments:True");
    let live = malloc(&mut allocator, 90).unwrap();
    fail_second_call(&mut allocator);
    let more = malloc(&mut allocator, 90).unwrap();
    assert_eq!(allocator.stats().num_alloc_retries, 1);
    assert_eq!(more, live.offset(90 * MIB), "in the same segment");
    allocator.check().unwrap();
}

fn fail_second_call(allocator: &mut DynAllocator) {
    let failure = DriverError::Failed("not permitted".to_owned());
    allocator.driver_mut().faults_mut().fail_after(1, failure);
}
