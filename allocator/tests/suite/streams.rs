//! Blocks that other streams use: which events are recorded, and what they hold back, also around captures.

use coalesce_alloc::driver::calls::{Call, CallKind};
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, DriverError, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::release::{Release, two};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::BlockState;
use coalesce_alloc::{Allocator as _, MempoolId, PoolCall, PyTorch};

const MIB: u64 = 1 << 20;
/// Requests of this size have a segment of their own.
const BYTES: u64 = 30 * MIB;
const POOL: MempoolId = MempoolId(4, 0);
const OTHER_POOL: MempoolId = MempoolId(5, 0);
const ONE: StreamId = StreamId::nth(1);
const TWO: StreamId = StreamId::nth(2);

type Allocator = PyTorch<SimDevice>;

/// An allocator of a release in which a redirection to a pool is a capture.
fn allocator() -> Allocator {
    of_release(two(11), "")
}

/// An allocator on a device whose events stay pending.
fn of_release(release: Release, conf: &str) -> Allocator {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(4096 * MIB)
    };
    let settings = Settings::of_release(release).started_with(conf);
    let mut device = SimDevice::new(&config);
    device.set_logging(true);
    PyTorch::new(device, settings.unwrap())
}

fn malloc(allocator: &mut Allocator) -> DeviceAddr {
    allocator.malloc(BYTES, StreamId::DEFAULT).unwrap()
}

/// Frees an allocation that these streams use.
fn free_used_by(allocator: &mut Allocator, addr: DeviceAddr, streams: &[StreamId]) {
    for &stream in streams {
        allocator.record_stream(addr, stream).unwrap();
    }
    allocator.free(addr).unwrap();
}

/// Directs all allocations to a pool. Until 2.12, a capture begins.
fn begin(allocator: &mut Allocator, pool: MempoolId) {
    let begun = allocator.begin_allocate_to_pool(pool, Box::new(|_| true));
    begun.unwrap();
}

fn complete(allocator: &mut Allocator, stream: StreamId) {
    let streams = allocator.driver_mut().streams_mut();
    streams.complete(stream, u64::MAX);
}

/// Whether a freed block waits for other streams.
fn waits(allocator: &Allocator, addr: DeviceAddr) -> bool {
    let segments = allocator.segments();
    let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let block = blocks.find(|block| block.address == addr).unwrap();
    block.state == BlockState::ActivePendingFree
}

/// The streams on which events were recorded since the last call.
fn recorded(allocator: &mut Allocator) -> Vec<StreamId> {
    let calls = allocator.driver_mut().take_log().into_iter();
    let streams = calls.filter_map(|call| match call {
        Call::RecordEvent { stream } => Some(stream),
        _ => None,
    });
    streams.collect()
}

#[test]
fn a_stream_recorded_in_a_capture_has_finished_with_it_and_others_have_not() {
    let mut allocator = allocator();
    let addr = malloc(&mut allocator);
    allocator.record_stream(addr, ONE).unwrap();
    begin(&mut allocator, POOL);
    free_used_by(&mut allocator, addr, &[TWO]);
    allocator.end_allocate_to_pool(POOL).unwrap();
    assert_eq!(recorded(&mut allocator), [], "nothing in a capture");

    assert_ne!(malloc(&mut allocator), addr);
    assert_eq!(recorded(&mut allocator), [ONE]);
    allocator.check().unwrap();
    complete(&mut allocator, ONE);
    assert_eq!(malloc(&mut allocator), addr);
    allocator.check().unwrap();
}

#[test]
fn what_a_capture_recorded_is_forgotten_with_the_free() {
    let mut allocator = allocator();
    let addr = malloc(&mut allocator);
    begin(&mut allocator, POOL);
    allocator.record_stream(addr, ONE).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    allocator.free(addr).unwrap();
    assert_eq!(recorded(&mut allocator), [ONE]);
    complete(&mut allocator, ONE);

    // The same memory, used by the same stream outside of the capture in which it is freed.
    assert_eq!(malloc(&mut allocator), addr);
    allocator.record_stream(addr, ONE).unwrap();
    begin(&mut allocator, POOL);
    allocator.free(addr).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    assert_ne!(malloc(&mut allocator), addr);
    assert_eq!(recorded(&mut allocator), [ONE]);
    allocator.check().unwrap();
}

#[test]
fn a_free_forgets_only_what_was_recorded_of_its_block() {
    let mut allocator = allocator();
    let [addr, other] = [0; 2].map(|_| malloc(&mut allocator));
    begin(&mut allocator, POOL);
    for addr in [addr, other] {
        allocator.record_stream(addr, ONE).unwrap();
    }
    allocator.free(addr).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    // Processes the free, and takes its memory. The capture recorded the stream of the other block, too.
    assert_eq!(malloc(&mut allocator), addr);
    begin(&mut allocator, POOL);
    allocator.free(other).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    assert_eq!(malloc(&mut allocator), other);
    assert_eq!(recorded(&mut allocator), []);
}

#[test]
fn events_are_not_queried_in_a_capture() {
    let mut allocator = allocator();
    let addr = malloc(&mut allocator);
    free_used_by(&mut allocator, addr, &[ONE]);
    complete(&mut allocator, ONE);
    begin(&mut allocator, POOL);
    let queries = |allocator: &Allocator| {
        let counts = allocator.driver().counts();
        counts.of(CallKind::QueryEvent)
    };
    let before = queries(&allocator);
    malloc(&mut allocator);
    assert_eq!(queries(&allocator), before);
    assert_eq!(allocator.stats().active().all().current, 2, "it waits");
    allocator.end_allocate_to_pool(POOL).unwrap();
    assert_eq!(malloc(&mut allocator), addr);
}

#[test]
fn deferred_frees_outlast_a_failure_to_record_an_event() {
    let mut allocator = allocator();
    let addresses = [0; 3].map(|_| malloc(&mut allocator));
    for addr in addresses {
        allocator.record_stream(addr, ONE).unwrap();
    }
    begin(&mut allocator, POOL);
    for addr in addresses {
        allocator.free(addr).unwrap();
    }
    allocator.end_allocate_to_pool(POOL).unwrap();
    let failure = DriverError::Failed("no event".to_owned());
    let faults = allocator.driver_mut().faults_mut();
    faults.fail_after(2, failure.clone()); // an event of the first was created and recorded
    let error = allocator.malloc(BYTES, StreamId::DEFAULT).unwrap_err();
    assert_eq!(error, Error::Driver(failure));
    allocator.check().unwrap();

    let other = malloc(&mut allocator);
    assert!(!addresses.contains(&other));
    assert_eq!(recorded(&mut allocator), [ONE; 3]);
    complete(&mut allocator, ONE);
    let again = [0; 3].map(|_| malloc(&mut allocator));
    assert_eq!(again, addresses);
    allocator.check().unwrap();
}

#[test]
fn deferred_frees_are_processed_in_their_order() {
    let mut allocator = allocator();
    let addresses = [0; 3].map(|_| malloc(&mut allocator));
    for addr in addresses {
        allocator.record_stream(addr, ONE).unwrap();
    }
    begin(&mut allocator, POOL);
    for addr in addresses {
        allocator.free(addr).unwrap();
    }
    allocator.end_allocate_to_pool(POOL).unwrap();
    malloc(&mut allocator); // records the events
    for addr in addresses {
        let streams = allocator.driver_mut().streams_mut();
        streams.complete(ONE, 1);
        assert_eq!(malloc(&mut allocator), addr);
    }
}

/// What a replay calls.
#[test]
fn a_capture_that_the_caller_names_is_one_whatever_the_device_says() {
    let mut allocator = of_release(two(13), "");
    let begin = |allocator: &mut Allocator| allocator.pool_call(PoolCall::BeginCapture);
    let end = |allocator: &mut Allocator| allocator.pool_call(PoolCall::EndCapture);
    let addr = malloc(&mut allocator);
    allocator.record_stream(addr, ONE).unwrap();
    begin(&mut allocator).unwrap();
    begin(&mut allocator).unwrap();
    end(&mut allocator).unwrap();
    allocator.free(addr).unwrap();
    assert_eq!(recorded(&mut allocator), [], "one has not ended");
    end(&mut allocator).unwrap();
    malloc(&mut allocator);
    assert_eq!(recorded(&mut allocator), [ONE]);
    let error = end(&mut allocator).unwrap_err();
    assert_eq!(error, PoolError::NoCapture.into());
}

/// An empty queue is gone, as in PyTorch: the next event of its stream makes a new one, behind the others.
#[test]
fn queues_are_in_the_order_of_a_table_of_those_that_wait() {
    let order = |streams: &[StreamId], complete_first: bool| {
        let mut allocator = allocator();
        for (at, &stream) in streams.iter().enumerate() {
            let addr = malloc(&mut allocator);
            free_used_by(&mut allocator, addr, &[stream]);
            if complete_first && at == 1 {
                complete(&mut allocator, streams[0]);
                let again = malloc(&mut allocator);
                free_used_by(&mut allocator, again, &[streams[0]]);
            }
        }
        allocator.driver_mut().take_log();
        allocator.empty_cache().unwrap();
        let calls = allocator.driver_mut().take_log().into_iter();
        let waited = calls.filter_map(|call| match call {
            Call::SynchronizeEvent { stream } => Some(stream),
            _ => None,
        });
        waited.collect::<Vec<_>>()
    };
    let mut differ = 0;
    for (a, b) in (1..16).flat_map(|a| (a + 1..16).map(move |b| (a, b))) {
        let [a, b] = [a, b].map(StreamId::nth);
        assert_eq!(order(&[a, b], true), order(&[b, a], false), "{a:?} {b:?}");
        differ += usize::from(order(&[a, b], false) != order(&[b, a], false));
    }
    assert!(differ > 0, "no two of these streams collide");
}

/// A block that many streams use leaves a larger table behind.
#[test]
fn streams_are_in_the_order_of_a_new_table() {
    let order = |allocator: &mut Allocator, streams: &[StreamId]| {
        let addr = malloc(allocator);
        free_used_by(allocator, addr, streams);
        for &stream in streams {
            complete(allocator, stream);
        }
        recorded(allocator)
    };
    let many: Vec<StreamId> = (1..20).map(StreamId::nth).collect();
    let (mut new, mut used) = (allocator(), allocator());
    for (a, b) in (1..16).flat_map(|a| (1..16).map(move |b| (a, b))) {
        let streams = [a, b].map(StreamId::nth);
        order(&mut used, &many);
        assert_eq!(order(&mut used, &streams), order(&mut new, &streams));
    }
}

#[test]
fn events_are_used_again() {
    let mut allocator = allocator();
    let created = |allocator: &Allocator| {
        let counts = allocator.driver().counts();
        counts.of(CallKind::CreateEvent)
    };
    let addr = malloc(&mut allocator);
    for _ in 0..3 {
        free_used_by(&mut allocator, addr, &[ONE]);
        complete(&mut allocator, ONE);
        assert_eq!(malloc(&mut allocator), addr);
        assert_eq!(created(&allocator), 1);
    }
    // One that could not be recorded, too.
    allocator.record_stream(addr, ONE).unwrap();
    let failure = DriverError::Failed("not recorded".to_owned());
    let faults = allocator.driver_mut().faults_mut();
    faults.fail_after(0, failure);
    assert!(allocator.free(addr).is_err());
    malloc(&mut allocator);
    assert_eq!(created(&allocator), 1);
}

#[test]
fn each_queue_is_looked_at() {
    for first in 1..=16 {
        let mut allocator = allocator();
        let streams: Vec<StreamId> = (1..=16).map(StreamId::nth).collect();
        let addresses: Vec<DeviceAddr> = streams.iter().map(|_| malloc(&mut allocator)).collect();
        for (addr, stream) in addresses.iter().zip(&streams) {
            free_used_by(&mut allocator, *addr, &[*stream]);
        }
        complete(&mut allocator, StreamId::nth(first));
        assert_eq!(malloc(&mut allocator), addresses[first as usize - 1]);
        allocator.check().unwrap();
    }
}

#[test]
fn waiting_for_all_streams_is_counted() {
    let mut allocator = allocator();
    let addr = malloc(&mut allocator);
    free_used_by(&mut allocator, addr, &[ONE, TWO]);
    for times in 1..=2 {
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.stats().num_sync_all_streams, times);
    }
    assert_eq!(allocator.driver().used(), 0);
}

#[test]
fn emptying_a_pool_waits_for_its_blocks_alone() {
    let mut allocator = of_release(two(13), "");
    let mine = malloc(&mut allocator);
    let others = [0; 3].map(|_| malloc(&mut allocator));
    begin(&mut allocator, POOL);
    let of_pool = [0; 2].map(|_| malloc(&mut allocator));
    allocator.end_allocate_to_pool(POOL).unwrap();
    allocator.release_pool(POOL).unwrap();
    let order = [
        mine, of_pool[0], others[0], others[1], of_pool[1], others[2],
    ];
    for addr in order {
        free_used_by(&mut allocator, addr, &[ONE]);
    }
    allocator.empty_pool(POOL).unwrap();
    assert_eq!(allocator.driver().used(), 4 * BYTES);
    assert_eq!(allocator.stats().active().all().current, 4, "they wait");
    allocator.check().unwrap();
}

#[test]
fn with_reuse_from_2_13_on_the_deferred_frees_of_a_pool_are_processed_when_it_ends() {
    let reuse = "graph_capture_record_stream_reuse:True";
    for (release, conf, at_end) in [
        (two(12), reuse, false),
        (two(13), "", false),
        (two(13), reuse, true),
    ] {
        let mut allocator = of_release(release, conf);
        let outside = malloc(&mut allocator);
        allocator.mark_capture_begin();
        allocator.driver_mut().set_capturing(true);
        begin(&mut allocator, POOL);
        let inside = malloc(&mut allocator);
        for addr in [outside, inside] {
            free_used_by(&mut allocator, addr, &[ONE]);
        }
        // So that 2.12 is in a capture all the time.
        begin(&mut allocator, OTHER_POOL);
        allocator.end_allocate_to_pool(POOL).unwrap();
        allocator.check().unwrap();
        let active = allocator.stats().active().all().current;
        assert_eq!(active, if at_end { 1 } else { 2 }, "{release} {conf}");
        assert!(waits(&allocator, outside));
        assert_eq!(waits(&allocator, inside), !at_end, "{release} {conf}");
        assert_eq!(recorded(&mut allocator), []);

        allocator.end_allocate_to_pool(OTHER_POOL).unwrap();
        allocator.driver_mut().set_capturing(false);
        allocator.mark_capture_end().unwrap();
        assert_eq!(malloc(&mut allocator), outside, "{release} {conf}");
        assert_eq!(allocator.stats().active().all().current, 1);
        allocator.check().unwrap();
    }
}
