//! Policies that know the program in advance, where it does as foreseen and where it does not.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};
use coalesce_alloc::policy::{self, BuildError};

/// What the device gives out memory in.
const PAGE: u64 = 2 << 20;
const MAIN: StreamId = StreamId::DEFAULT;
const SIDE: StreamId = StreamId::nth(1);
const BASE: DeviceAddr = DeviceAddr(0x200_0000_0000);

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

/// A program of requests, each with the number of requests before it is given back.
fn program(requests: &[(u64, StreamId, usize)]) -> Lifetimes {
    let mut program = LifetimeRecorder::default();
    for (number, &(bytes, stream, _)) in requests.iter().enumerate() {
        for (id, &(.., until)) in requests[..number].iter().enumerate() {
            if until == number {
                program.free(id as u64);
            }
        }
        program.malloc(number as u64, bytes, stream);
    }
    program.finish()
}

/// Two blocks side by side, then one over both of them.
fn pyramid() -> Lifetimes {
    program(&[(PAGE, MAIN, 2), (2 * PAGE, SIDE, 2), (3 * PAGE, MAIN, 3)])
}

fn build(name: &str, capacity: u64, foresight: &Lifetimes) -> DynAllocator {
    let device = SimDevice::new(&SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(capacity)
    });
    let prepared = policy::plan_offline(name, "", foresight).unwrap().unwrap();
    prepared.build(device)
}

fn reserved(allocator: &DynAllocator) -> i64 {
    allocator.stats().reserved_bytes.all.current
}

/// How often a stream was made to wait for another.
fn waits(allocator: &DynAllocator) -> u64 {
    allocator.driver().counts().of(CallKind::WaitEvent)
}

fn is_planned(addr: DeviceAddr) -> bool {
    (BASE..BASE.offset(3 * PAGE)).contains(&addr)
}

#[test]
fn what_is_not_foreseen_is_an_error() {
    for name in ["offline", "stalloc"] {
        let device = SimDevice::new(&SimConfig::default());
        let error = policy::build(name, device, "").map(|_| ()).unwrap_err();
        assert_eq!(error, BuildError::Offline { policy: name });
        policy::check_conf(name, "").unwrap();
        policy::check_conf(name, "nonsense:1").unwrap_err();
    }
}

#[test]
fn the_arena_is_as_large_as_the_plan_is_high_and_comes_with_the_first_request() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    assert_eq!(reserved(&allocator), 0);
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    assert_eq!(allocator.malloc(3 * PAGE, MAIN).unwrap(), BASE);
    assert_eq!(reserved(&allocator), 6 << 20);
    // Nothing is planned after the last request.
    assert!(!is_planned(allocator.malloc(PAGE, MAIN).unwrap()));
}

#[test]
fn a_stream_waits_for_the_one_whose_memory_it_takes_over() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    assert_eq!(waits(&allocator), 0);
    allocator.malloc(3 * PAGE, MAIN).unwrap();
    assert_eq!(
        waits(&allocator),
        1,
        "for the other stream, and for it alone"
    );
}

#[test]
fn it_waits_for_the_streams_that_memory_was_recorded_on_too() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    allocator.record_stream(first, StreamId::nth(2)).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    assert_eq!(allocator.malloc(3 * PAGE, MAIN).unwrap(), BASE);
    assert_eq!(waits(&allocator), 2);
}

#[test]
fn a_block_that_is_freed_late_keeps_its_place() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    allocator.free(second).unwrap();
    assert!(!is_planned(allocator.malloc(3 * PAGE, MAIN).unwrap()));
    allocator.free(first).unwrap();
    allocator.check().unwrap();
}

#[test]
fn only_the_request_that_was_planned_gets_its_place() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    allocator.malloc(PAGE + 1, MAIN).unwrap();
    allocator.malloc(2 * PAGE, MAIN).unwrap();
    assert_eq!(
        reserved(&allocator),
        20 << 20,
        "another size, another stream"
    );
    allocator.malloc(3 * PAGE, MAIN).unwrap();
    assert_eq!(reserved(&allocator), 26 << 20);
}

#[test]
fn without_memory_for_the_arena_the_fallback_serves_all_until_the_cache_is_emptied() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    allocator.driver_mut().faults_mut().refuse_next(1);
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    // A segment for each stream.
    assert_eq!(reserved(&allocator), 40 << 20);
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 0);
    allocator.malloc(3 * PAGE, MAIN).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
}

#[test]
fn the_arena_goes_when_nothing_in_it_is_used_and_comes_again() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 6 << 20, "a block is live");
    allocator.free(first).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!((reserved(&allocator), allocator.driver().used()), (0, 0));
    allocator.malloc(2 * PAGE, SIDE).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
}

/// Weights, then iterations of one activation each, and a state that comes in the first.
#[test]
fn the_second_iteration_is_done_over_and_over() {
    let mut program = LifetimeRecorder::default();
    program.malloc(0, 4 * PAGE, MAIN);
    for step in 0..3 {
        program.mark(&format!("step {step}"));
        program.malloc(1 + step, 8 * PAGE, MAIN);
        if step == 0 {
            program.malloc(9, 2 * PAGE, MAIN);
        }
        program.free(1 + step);
    }
    let mut allocator = build("stalloc", 1 << 30, &program.finish());
    let mut ask = |bytes: u64| allocator.malloc(bytes, MAIN).unwrap();
    assert_eq!(ask(4 * PAGE), BASE);
    let activation = ask(8 * PAGE);
    assert_eq!(activation, BASE.offset(6 * PAGE));
    assert_eq!(ask(2 * PAGE), BASE.offset(4 * PAGE));
    allocator.free(activation).unwrap();
    for _ in 0..10 {
        // Small requests have no part in it.
        let small = allocator.malloc(512, MAIN).unwrap();
        let again = allocator.malloc(8 * PAGE, MAIN).unwrap();
        assert_eq!(again, activation);
        allocator.free(again).unwrap();
        allocator.free(small).unwrap();
    }
}
