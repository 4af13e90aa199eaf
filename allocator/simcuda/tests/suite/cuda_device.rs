//! The CUDA device over the simulated driver behaves as a device.

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::cuda::{CudaDevice, CudaError, NativeStreams, StreamHandles};
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::hooks::cost::Costs;
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, EventId, HandleKind, MemoryHandle, PoolSettings, SharedHandle,
    StreamId, VirtualMemory,
};
use coalesce_alloc::error::Error;
use coalesce_alloc::pytorch::share::Shareable;
use coalesce_alloc::settings::Settings;

use crate::machine::{Machine, counters, current_context, device, on_device, set_capturing};

const GIB: u64 = 1 << 30;
const PAGE: u64 = GRANULARITY;

#[test]
fn a_device_reports_its_properties() {
    Machine::with(&[
        ("FAKE_TOTAL_BYTES", "24G"),
        ("FAKE_FOREIGN_BYTES", "1G"),
        ("FAKE_DRIVER_VERSION", "12080"),
        ("FAKE_CC", "8.6"),
    ])
    .run(|| {
        assert_eq!(CudaDevice::count(), Ok(1));
        let mut device = device();
        assert_eq!(device.ordinal(), 0);
        assert!(!device.name().is_empty());
        assert_eq!(device.driver_version(), Ok((12, 8)));
        assert_eq!(device.compute_capability(), Ok((8, 6)));
        assert_eq!(
            (device.total_memory(), device.granularity()),
            (24 * GIB, PAGE)
        );
        let info = device.memory_info().unwrap();
        assert_eq!((info.free, info.total), (23 * GIB, 24 * GIB));
        assert_eq!(device.ensure_virtual_memory(), Ok(()));
        assert!(device.virtual_memory().is_some() && device.stream_ordered().is_some());
    });
}

#[test]
fn memory_is_allocated_and_freed() {
    on_device(&[("FAKE_TOTAL_BYTES", "64M")], |mut device| {
        let addr = device.malloc(40 << 20).unwrap();
        assert_eq!(device.memory_info().unwrap().free, 24 << 20);
        assert_eq!(device.malloc(40 << 20), Err(DriverError::OutOfMemory));
        assert_eq!(device.malloc(u64::MAX), Err(DriverError::OutOfMemory));
        assert_eq!(
            device.memory_info().unwrap().free,
            24 << 20,
            "a failure changes nothing"
        );
        assert_eq!(device.malloc(0), Err(DriverError::InvalidValue));
        let inside = addr.offset(PAGE);
        let invalid = Err(DriverError::InvalidValue);
        assert_eq!(device.free(inside, PAGE), invalid);
        assert_eq!(device.free(addr, 39 << 20), invalid, "wrong size");
        assert_eq!(device.free(addr, 40 << 20), Ok(()));
        assert_eq!(device.free(addr, 40 << 20), invalid);
        assert_eq!(device.memory_info().unwrap().free, 64 << 20);
        assert_eq!(
            device.last_error(),
            Ok(()),
            "failed calls do not break the device"
        );
    });
}

#[test]
fn addresses_and_memory_are_separate() {
    on_device(&[("FAKE_TOTAL_BYTES", "64M")], |mut device| {
        let memory = device.virtual_memory().unwrap();
        let kind = HandleKind::FileDescriptor;
        let base = memory.reserve(GIB).unwrap();
        let handle = memory.create(2 * PAGE, kind).unwrap();
        assert_eq!(memory.create(GIB, kind), Err(DriverError::OutOfMemory));
        memory.map(base, 2 * PAGE, handle).unwrap();
        memory.map(base.offset(2 * PAGE), 2 * PAGE, handle).unwrap();
        memory.set_access(base, 4 * PAGE).unwrap();
        assert!(memory.map(base, 2 * PAGE, handle).is_err(), "not empty");
        assert!(memory.set_access(base, 8 * PAGE).is_err(), "not all mapped");
        let invalid = Err(DriverError::InvalidValue);
        assert_eq!(memory.release(handle, PAGE), invalid, "wrong size");
        memory.release(handle, 2 * PAGE).unwrap();
        assert_eq!(memory.release(handle, 2 * PAGE), invalid);
        let released = memory.map(base.offset(4 * PAGE), 2 * PAGE, handle);
        assert_eq!(released, Err(DriverError::InvalidValue));
        assert_eq!(memory.unmap(base, PAGE), Err(DriverError::InvalidValue));
        memory.unmap(base, 2 * PAGE).unwrap();
        assert_eq!(memory.unmap(base, 2 * PAGE), Err(DriverError::InvalidValue));
        memory.unmap(base.offset(2 * PAGE), 2 * PAGE).unwrap();
        let part = memory.free_address(base, PAGE);
        assert_eq!(part, Err(DriverError::InvalidValue));
        memory.free_address(base, GIB).unwrap();
        let stranger = memory.release(MemoryHandle(12345), PAGE);
        assert_eq!(stranger, Err(DriverError::InvalidValue));
        assert_eq!(device.memory_info().unwrap().free, 64 << 20);
    });
}

#[test]
fn memory_for_other_processes_is_named_until_it_is_released() {
    on_device(&[("FAKE_FABRIC", "1")], |mut device| {
        for kind in [HandleKind::FileDescriptor, HandleKind::Fabric] {
            let base = device.reserve(PAGE).unwrap();
            let handle = device.create(PAGE, kind).unwrap();
            let shared = device.export(handle, kind).unwrap();
            assert_eq!(device.export(handle, kind), Ok(shared), "the same name");
            let imported = device.import(PAGE, shared).unwrap();
            assert_ne!(imported, handle);
            device.map(base, PAGE, imported).unwrap();
            device.set_access(base, PAGE).unwrap();
            device.unmap(base, PAGE).unwrap();
            device.release(imported, PAGE).unwrap();
            device.release(handle, PAGE).unwrap();
            assert_eq!(
                device.export(handle, kind),
                Err(DriverError::InvalidValue),
                "released"
            );
            if let SharedHandle::FileDescriptor(_) = shared {
                assert!(device.import(PAGE, shared).is_err(), "the file is closed");
            }
        }
        let handle = device.create(PAGE, HandleKind::Fabric).unwrap();
        let other_kind = device.export(handle, HandleKind::FileDescriptor);
        assert!(other_kind.is_err(), "created for another kind of sharing");
        device.keep_private("by choice");
        let private = device.create(PAGE, HandleKind::FileDescriptor).unwrap();
        let refused = device.export(private, HandleKind::FileDescriptor);
        assert_eq!(refused, Err(DriverError::Failed("by choice".to_owned())));
    });
}

#[test]
fn the_reference_shares_whole_segments_and_the_pages_of_a_block() {
    Machine::with(&[]).run(|| {
        let mut settings = Settings::default();
        let mut allocator = PyTorch::new(device(), settings.clone());
        let block = |allocator: &mut PyTorch<CudaDevice>, bytes| {
            allocator.malloc(bytes, StreamId::DEFAULT).unwrap()
        };
        let start = block(&mut allocator, 512);
        let inside = block(&mut allocator, 512);
        assert_eq!(allocator.share(inside), Ok(Shareable::Segment { start }));
        let unknown = start.offset(1024);
        assert_eq!(
            allocator.share(unknown),
            Err(Error::InvalidPointer(unknown))
        );

        settings.apply("expandable_segments:True").unwrap();
        let mut allocator = PyTorch::new(device(), settings);
        let first = block(&mut allocator, 15 << 20);
        let second = block(&mut allocator, 30 << 20);
        let shared = |allocator: &mut PyTorch<CudaDevice>, addr| match allocator.share(addr) {
            Ok(Shareable::Pages { start, pages }) => (start.offset_from(first), pages),
            other => panic!("{other:?}"),
        };
        let (start, of_first) = shared(&mut allocator, first);
        assert_eq!((start, of_first.len()), (0, 1));
        assert_eq!(of_first[0].bytes, 20 << 20);
        let (start, of_second) = shared(&mut allocator, second);
        assert_eq!((start, of_second.len()), (0, 3));
        assert_eq!(of_first[0], of_second[0], "the page that both use");
    });
}

#[test]
fn events_follow_their_streams() {
    on_device(&[("FAKE_HOLD_EVENTS", "1")], |mut device| {
        let [a, b] = [0; 2].map(|_| device.create_event().unwrap());
        assert_eq!(device.event_is_complete(a), Ok(true), "never recorded");
        let (first, second) = (StreamId::nth(1), StreamId::nth(2));
        device.record_event(a, first).unwrap();
        device.record_event(b, second).unwrap();
        assert_eq!(device.event_is_complete(a), Ok(false));
        device.wait_event(second, a).unwrap();
        device.synchronize_stream(first).unwrap();
        assert_eq!(device.event_is_complete(a), Ok(true));
        assert_eq!(device.event_is_complete(b), Ok(false));
        device.synchronize_event(b).unwrap();
        assert_eq!(device.event_is_complete(b), Ok(true));
        device.record_event(a, StreamId::DEFAULT).unwrap();
        assert_eq!(device.event_is_complete(a), Ok(false));
        device.synchronize_device().unwrap();
        assert_eq!(device.event_is_complete(a), Ok(true));
        let unknown = EventId(2);
        assert_eq!(
            device.event_is_complete(unknown),
            Err(DriverError::InvalidValue)
        );
        let unnumbered = device.record_event(a, StreamId(7));
        assert_eq!(unnumbered, Err(DriverError::InvalidValue));
    });
}

#[test]
fn timed_events_measure_time() {
    on_device(&[], |mut device| {
        let [start, end] = [0; 2].map(|_| device.create_timed_event().unwrap());
        device.record_event(start, StreamId::DEFAULT).unwrap();
        device.record_event(end, StreamId::DEFAULT).unwrap();
        device.synchronize_event(end).unwrap();
        assert!(device.elapsed_ms(start, end).unwrap() >= 0.0);
        let before = device.now_us();
        assert!(device.now_us() >= before);
    });
}

#[test]
fn streams_can_be_native_handles() {
    Machine::with(&[("FAKE_HOLD_EVENTS", "1")]).run(|| {
        let mut owner = device();
        // SAFETY: the test uses only the default stream, which always exists.
        let native = unsafe { NativeStreams::promised() };
        let mut guest = CudaDevice::open(0, StreamHandles::Native(native)).unwrap();
        let event = guest.create_event().unwrap();
        guest.record_event(event, StreamId::DEFAULT).unwrap();
        assert_eq!(guest.event_is_complete(event), Ok(false));
        owner.synchronize_stream(StreamId::DEFAULT).unwrap();
        assert_eq!(
            guest.event_is_complete(event),
            Ok(true),
            "one context, one stream"
        );
        let addr = guest.malloc(PAGE).unwrap();
        assert_eq!(
            owner.free(addr, PAGE),
            Err(DriverError::InvalidValue),
            "allocated by another"
        );
    });
}

#[test]
fn the_pool_follows_stream_order() {
    on_device(&[("FAKE_TOTAL_BYTES", "1G")], |mut device| {
        let pool = device.stream_ordered().unwrap();
        pool.set_pool(PoolSettings {
            release_threshold: u64::MAX,
            reuse_opportunistic: true,
            reuse_internal_dependencies: true,
        })
        .unwrap();
        let stream = StreamId::nth(1);
        let addr = pool.pool_malloc(5 << 20, stream).unwrap();
        let usage = pool.pool_usage().unwrap();
        assert!(
            usage.reserved >= usage.used && usage.used >= 5 << 20,
            "{usage:?}"
        );
        assert_eq!(usage.reserved, pool.pool_reserved().unwrap());
        assert_eq!(
            pool.pool_malloc(2 * GIB, stream),
            Err(DriverError::OutOfMemory)
        );
        assert_eq!(pool.pool_malloc(0, stream), Err(DriverError::InvalidValue));
        let free_stream = pool.free_stream().unwrap();
        assert_eq!(pool.free_stream(), Ok(free_stream), "always the same");
        let invalid = Err(DriverError::InvalidValue);
        assert_eq!(pool.pool_free(addr, PAGE, free_stream), invalid);
        pool.pool_free(addr, 5 << 20, free_stream).unwrap();
        assert_eq!(pool.pool_free(addr, 5 << 20, stream), invalid);
        device.synchronize_device().unwrap();
        let pool = device.stream_ordered().unwrap();
        let kept = pool.pool_usage().unwrap();
        assert_eq!(
            (kept.reserved, kept.used),
            (usage.reserved, 0),
            "the pool keeps its memory"
        );
        assert_eq!(kept.used_peak, usage.used_peak);
        pool.reset_pool_peaks().unwrap();
        assert_eq!(pool.pool_usage().unwrap().used_peak, 0);
        pool.trim_pool(0).unwrap();
        assert_eq!(pool.pool_reserved(), Ok(0));
        assert_eq!(device.memory_info().unwrap().free, GIB);
        assert_eq!(device.graph_memory().unwrap().used, 0);
        device.trim_graph_memory().unwrap();
    });
}

#[test]
fn calls_to_the_pool_are_counted_and_logged() {
    Machine::with(&[("FAKE_TOTAL_BYTES", "1G")]).run(|| {
        let mut device = Tap::over(device(), Instruments::new(Costs::default(), 0));
        device.set_logging(true);
        let stream = StreamId::nth(1);
        let pool = device.stream_ordered().unwrap();
        let addr = pool.pool_malloc(PAGE, stream).unwrap();
        let reserved = pool.pool_reserved().unwrap();
        pool.pool_malloc(2 * GIB, stream).unwrap_err();
        pool.pool_free(addr, PAGE, stream).unwrap();
        pool.trim_pool(PAGE).unwrap();
        let log: Vec<String> = device.take_log().iter().map(ToString::to_string).collect();
        let expected = [
            format!("pool_malloc {PAGE} {addr} stream=0x1000"),
            format!("pool_reserved {reserved}"),
            format!("pool_malloc {} OOM", 2 * GIB),
            format!("pool_free {addr} stream=0x1000"),
            format!("pool_trim {PAGE}"),
        ];
        assert_eq!(log, expected);
        let count = |kind| device.counts().of(kind);
        assert_eq!(count(CallKind::PoolMalloc), 2);
        assert_eq!(count(CallKind::PoolFree), 1);
        let fault = DriverError::Failed("ordered".to_owned());
        device.faults_mut().fail_after(0, fault.clone());
        let pool = device.stream_ordered().unwrap();
        assert_eq!(pool.pool_malloc(PAGE, stream), Err(fault));
    });
}

#[test]
fn reads_return_what_was_written() {
    on_device(&[("FAKE_MEMORY", "1")], |mut device| {
        let addr = device.malloc(2 * PAGE).unwrap();
        let stream = StreamId::nth(1);
        device.fill_words(addr, 0x0403_0201, 2, stream).unwrap();
        device.fill_bytes(addr.offset(8), 9, 2, stream).unwrap();
        device.synchronize_stream(stream).unwrap();
        device.write(addr.offset(10), &[7]).unwrap();
        let mut bytes = [0; 11];
        device.read(addr, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4, 9, 9, 7]);
    });
}

#[test]
fn only_allocated_memory_can_be_written_or_read() {
    on_device(&[], |mut device| {
        let addr = device.malloc(PAGE).unwrap();
        let invalid = Err(DriverError::InvalidValue);
        let stream = StreamId::DEFAULT;
        assert_eq!(device.fill_bytes(addr, 0, PAGE + 1, stream), invalid);
        assert_eq!(device.fill_words(addr, 0, u64::MAX, stream), invalid);
        assert_eq!(device.read(addr.offset(PAGE), &mut [0]), invalid);
        assert_eq!(device.write(DeviceAddr(8), &[0]), invalid);
        let on_host = std::ptr::from_ref(&invalid).addr() as u64;
        assert_eq!(
            device.fill_bytes(DeviceAddr(on_host), 0, 1, stream),
            invalid
        );
        device.free(addr, PAGE).unwrap();
        assert_eq!(device.fill_bytes(addr, 0, 1, stream), invalid);
    });
}

#[test]
fn devices_are_independent() {
    Machine::with(&[("FAKE_DEVICE_COUNT", "3"), ("FAKE_TOTAL_BYTES", "1G")]).run(|| {
        assert_eq!(CudaDevice::count(), Ok(3));
        let open = |ordinal| CudaDevice::open(ordinal, StreamHandles::Numbered);
        let beyond = open(3).map(drop);
        assert_eq!(
            beyond,
            Err(CudaError::NoSuchDevice {
                ordinal: 3,
                count: 3
            })
        );
        let [mut first, mut last] = [0, 2].map(|ordinal| open(ordinal).unwrap());
        assert_eq!((first.ordinal(), last.ordinal()), (0, 2));
        let [a, b] = [&mut first, &mut last].map(|device| device.malloc(GIB / 2).unwrap());
        assert_ne!(a, b);
        for device in [&mut first, &mut last] {
            assert_eq!(device.memory_info().unwrap().free, GIB / 2);
        }
        assert_eq!(last.free(a, GIB / 2), Err(DriverError::InvalidValue));
        drop(first);
        assert_eq!(last.memory_info().unwrap().free, GIB / 2);
        last.free(b, GIB / 2).unwrap();
        assert_eq!(last.memory_info().unwrap().free, GIB);
    });
}

/// The number of calls that grant access: after one mapping, after opening it to a second device,
/// after opening it again, and after another mapping.
fn access_given() -> [u64; 4] {
    let mut first = CudaDevice::open(0, StreamHandles::Numbered).unwrap();
    let base = first.reserve(4 * PAGE).unwrap();
    let map = |first: &mut CudaDevice, addr: DeviceAddr| {
        let handle = first.create(PAGE, HandleKind::FileDescriptor).unwrap();
        first.map(addr, PAGE, handle).unwrap();
        first.set_access(addr, PAGE).unwrap();
        counters().n_setaccess
    };
    let open = |first: &mut CudaDevice| {
        first.open_to_peer(1).unwrap();
        counters().n_setaccess
    };
    first.open_to_peer(0).unwrap();
    assert!(first.open_to_peer(2).is_err(), "no such peer");
    [
        map(&mut first, base),
        open(&mut first),
        open(&mut first),
        map(&mut first, base.offset(PAGE)),
    ]
}

#[test]
fn mappings_are_opened_to_peers_once() {
    Machine::with(&[("FAKE_DEVICE_COUNT", "2"), ("FAKE_PEERS", "1")]).run(|| {
        assert_eq!(access_given(), [1, 2, 2, 3]);
    });
}

#[test]
fn devices_without_peer_access_are_no_peers() {
    Machine::with(&[("FAKE_DEVICE_COUNT", "2")]).run(|| {
        assert_eq!(access_given(), [1, 1, 1, 2]);
    });
}

#[test]
fn calls_leave_the_current_context_unchanged() {
    Machine::with(&[("FAKE_DEVICE_COUNT", "2")]).run(|| {
        let [mut first, mut second] =
            [0, 1].map(|ordinal| CudaDevice::open(ordinal, StreamHandles::Numbered).unwrap());
        let before = current_context();
        assert_ne!(before, 0, "the first device's context became current");
        second.malloc(PAGE).unwrap();
        assert_eq!(current_context(), before);
        let threads = std::thread::spawn(move || {
            first.malloc(PAGE).unwrap();
            assert_eq!(current_context(), 0);
            first
        });
        let first = threads.join().unwrap();
        drop(first);
        assert_eq!(current_context(), 0, "a released context is not current");
        second.malloc(PAGE).unwrap();
    });
}

/// Uses some of every kind of resource.
fn use_everything(device: &mut CudaDevice) {
    let addr = device.malloc(PAGE).unwrap();
    device.malloc(3 * PAGE).unwrap();
    device.free(addr, PAGE).unwrap();
    let event = device.create_event().unwrap();
    device.create_timed_event().unwrap();
    device.record_event(event, StreamId::nth(5)).unwrap();
    let memory = device.virtual_memory().unwrap();
    let base = memory.reserve(8 * PAGE).unwrap();
    let [held, released] = [0; 2].map(|_| memory.create(PAGE, HandleKind::FileDescriptor).unwrap());
    memory.create(PAGE, HandleKind::FileDescriptor).unwrap();
    memory.map(base, PAGE, held).unwrap();
    memory.map(base.offset(PAGE), PAGE, released).unwrap();
    memory.set_access(base, 2 * PAGE).unwrap();
    memory.release(released, PAGE).unwrap();
    let pool = device.stream_ordered().unwrap();
    pool.pool_malloc(PAGE, StreamId::nth(6)).unwrap();
}

#[test]
fn a_dropped_device_returns_everything() {
    Machine::with(&[]).run(|| {
        let mut witness = device();
        let free = witness.memory_info().unwrap().free;
        let mut device = device();
        use_everything(&mut device);
        let counted = counters();
        assert!(counted.live_mallocs > 0 && counted.live_handles > 0);
        drop(device);
        let counted = counters();
        let left = (
            counted.live_mallocs,
            counted.live_handles,
            counted.live_reservations,
        );
        assert_eq!(left, (0, 0, 0));
        assert_eq!(counted.n_event_create, counted.n_event_destroy);
        assert_eq!(witness.memory_info().unwrap().free, free);
    });
}

#[test]
fn an_unused_device_can_be_dropped() {
    Machine::with(&[]).run(|| {
        for _ in 0..3 {
            drop(device());
        }
        assert_eq!(current_context(), 0);
    });
}

#[test]
fn a_device_sees_whether_the_current_stream_is_captured() {
    on_device(&[], |mut device| {
        assert!(!device.is_capturing());
        set_capturing(true);
        assert!(device.is_capturing());
        device.follow_current_stream(|_| StreamId::nth(1));
        assert!(!device.is_capturing(), "of a stream that does not exist");
        set_capturing(false);
    });
}
