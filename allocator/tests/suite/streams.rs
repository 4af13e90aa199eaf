//! Blocks that other streams use: queues of events in the order of PyTorch's tables. `transcripts/streams.txt` has which
//! events are recorded, and what they hold back, also around captures.

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::release::v2;
use coalesce_alloc::settings::Settings;

const MIB: u64 = 1 << 20;
/// Requests of this size have a segment of their own.
const BYTES: u64 = 30 * MIB;

type Allocator = PyTorch<SimDevice>;

/// An allocator on a device whose events stay pending.
fn allocator() -> Allocator {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(4096 * MIB)
    };
    let mut device = SimDevice::new(&config);
    device.set_logging(true);
    PyTorch::new(device, Settings::of_release(v2(11)))
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

fn complete(allocator: &mut Allocator, stream: StreamId) {
    let streams = allocator.driver_mut().streams_mut();
    streams.complete(stream, u64::MAX);
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
