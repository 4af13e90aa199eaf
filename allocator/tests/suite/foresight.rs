//! Offline policies, on the announced program and on others.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::lifetimes::{LifetimeRecorder, Lifetimes};
use coalesce_alloc::registry::{self, BuildError};

/// The granularity of device memory.
const PAGE: u64 = 2 << 20;
const MAIN: StreamId = StreamId::DEFAULT;
const SIDE: StreamId = StreamId::nth(1);
const BASE: DeviceAddr = DeviceAddr(0x200_0000_0000);

type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

/// A program of requests, each with the number of requests before it is freed.
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

/// Two adjacent blocks, then one over both.
fn pyramid() -> Lifetimes {
    program(&[(PAGE, MAIN, 2), (2 * PAGE, SIDE, 2), (3 * PAGE, MAIN, 3)])
}

fn build(name: &str, capacity: u64, foresight: &Lifetimes) -> DynAllocator {
    let device = SimDevice::new(&SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(capacity)
    });
    let prepared = registry::plan_offline(name, "", foresight)
        .unwrap()
        .unwrap();
    prepared.build(device)
}

fn reserved(allocator: &DynAllocator) -> i64 {
    allocator.stats().reserved_bytes.all().current
}

/// How often a stream waited for another.
fn waits(allocator: &DynAllocator) -> u64 {
    allocator.driver().counts().of(CallKind::WaitEvent)
}

fn is_planned(addr: DeviceAddr) -> bool {
    (BASE..BASE.offset(3 * PAGE)).contains(&addr)
}

#[test]
fn an_inconsistent_program_is_an_error() {
    for name in ["offline", "stalloc"] {
        let device = SimDevice::new(&SimConfig::default());
        let error = registry::build(name, device, "").map(|_| ()).unwrap_err();
        assert_eq!(error, BuildError::Offline { policy: name });
        registry::check_conf(name, "").unwrap();
        registry::check_conf(name, "nonsense:1").unwrap_err();
    }
}

#[test]
fn the_first_request_allocates_an_arena_of_the_height_of_the_plan() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    assert_eq!(reserved(&allocator), 0);
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    assert_eq!(allocator.malloc(3 * PAGE, MAIN).unwrap(), BASE);
    assert_eq!(reserved(&allocator), 6 << 20);
    // The plan ends with the last request.
    assert!(!is_planned(allocator.malloc(PAGE, MAIN).unwrap()));
}

#[test]
fn a_stream_waits_for_the_stream_whose_memory_it_reuses() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    assert_eq!(waits(&allocator), 0);
    allocator.malloc(3 * PAGE, MAIN).unwrap();
    assert_eq!(waits(&allocator), 1, "it waits only for the other stream");
}

#[test]
fn a_stream_waits_for_the_streams_recorded_on_reused_memory() {
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
fn a_block_freed_late_keeps_its_place() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    allocator.free(second).unwrap();
    assert!(!is_planned(allocator.malloc(3 * PAGE, MAIN).unwrap()));
    allocator.free(first).unwrap();
    allocator.check().unwrap();
}

#[test]
fn only_the_planned_request_gets_its_place() {
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
fn without_memory_for_the_arena_the_fallback_serves_requests_until_empty_cache() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    allocator.driver_mut().faults_mut().refuse_next(1);
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    let second = allocator.malloc(2 * PAGE, SIDE).unwrap();
    // One segment for each stream.
    assert_eq!(reserved(&allocator), 40 << 20);
    allocator.free(first).unwrap();
    allocator.free(second).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(&allocator), 0);
    allocator.malloc(3 * PAGE, MAIN).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
}

#[test]
fn an_unused_arena_is_released_and_allocated_again() {
    let mut allocator = build("offline", 1 << 30, &pyramid());
    let first = allocator.malloc(PAGE, MAIN).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(
        reserved(&allocator),
        6 << 20,
        "a block in the arena is live"
    );
    allocator.free(first).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!((reserved(&allocator), allocator.driver().used()), (0, 0));
    allocator.malloc(2 * PAGE, SIDE).unwrap();
    assert_eq!(reserved(&allocator), 6 << 20);
}

/// Weights, then iterations with one activation each, and optimizer state that the first iteration
/// allocates.
#[test]
fn the_second_iteration_is_repeated() {
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
        // The plan leaves out small requests.
        let small = allocator.malloc(512, MAIN).unwrap();
        let again = allocator.malloc(8 * PAGE, MAIN).unwrap();
        assert_eq!(again, activation);
        allocator.free(again).unwrap();
        allocator.free(small).unwrap();
    }
}
