//! A malloc in parts, with and without other calls in between.

use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, Driver as _, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::pytorch::in_parts::{Pending, Progress};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, ONE_EXABYTE, PyTorch};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const STREAM: StreamId = StreamId::DEFAULT;

fn allocator(conf: &str, capacity: u64) -> PyTorch<SimDevice> {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
}

/// The two parts of a raw malloc together decide as it does, also if something was freed between them.
#[test]
fn a_malloc_can_be_made_in_two_parts() {
    let mut allocator = allocator("", 64 * MIB);
    let found = allocator.malloc_cached(0, STREAM);
    assert_eq!(found, Ok(Some(DeviceAddr::NULL)));
    assert_eq!(allocator.malloc_cached(40 * MIB, STREAM), Ok(None));
    let first = allocator.malloc_uncached(40 * MIB, STREAM, false).unwrap();
    // There is no memory for a second one, until the first is freed.
    assert_eq!(allocator.malloc_cached(40 * MIB, STREAM), Ok(None));
    allocator.free(first).unwrap();
    let reused = allocator.malloc_uncached(40 * MIB, STREAM, true);
    assert_eq!(reused, Ok(first));
    assert_eq!(allocator.stats().num_device_alloc, 1);
    // Like `raw_malloc`, they have no limit of their own.
    assert_eq!(allocator.malloc_cached(ONE_EXABYTE, STREAM), Ok(None));
    let failed = allocator.malloc_uncached(ONE_EXABYTE, STREAM, false);
    assert!(matches!(failed, Err(Error::OutOfMemory(_))), "{failed:?}");
    allocator.check().unwrap();
}

/// Two threads ask for the last memory; the second one gets what the first cannot.
#[test]
fn a_request_continues_with_the_steps_that_are_left() {
    let mut allocator = allocator("", 60 * MIB);
    let cached = allocator.malloc(20 * MIB, STREAM).unwrap();
    allocator.free(cached).unwrap();
    let Ok(Progress::NeedsSegment(pending)) = allocator.begin_uncached(40 * MIB, STREAM, false)
    else {
        panic!("the device has memory for it");
    };
    assert_eq!(pending.segment_size(), 40 * MIB);
    // Another thread is faster.
    let faster = allocator.malloc(30 * MIB, STREAM).unwrap();
    let refused = allocator.driver_mut().malloc(40 * MIB);
    let Ok(Progress::NeedsSegment(pending)) = allocator.resume(pending, refused) else {
        panic!("the cached 20 MiB were returned, so the device is asked again");
    };
    assert_eq!(allocator.stats().num_alloc_retries, 1);
    allocator.free(faster).unwrap();
    allocator.empty_cache().unwrap();
    let answer = allocator.driver_mut().malloc(40 * MIB);
    assert!(matches!(
        allocator.resume(pending, answer),
        Ok(Progress::Done(_))
    ));
    allocator.check().unwrap();
}

#[test]
fn cached_memory_is_only_looked_for_if_some_was_freed() {
    for memory_was_freed in [false, true] {
        let mut allocator = allocator("", 90 * MIB);
        let cached = allocator.malloc(40 * MIB, STREAM).unwrap();
        allocator.free(cached).unwrap();
        let begun = allocator.begin_uncached(40 * MIB, STREAM, memory_was_freed);
        let is_cached = matches!(begun, Ok(Progress::Done(addr)) if addr == cached);
        assert_eq!(is_cached, memory_was_freed);
    }
}

/// Its pool goes away while the device is asked.
#[test]
fn a_segment_that_no_pool_takes_is_returned() {
    const POOL: MempoolId = MempoolId(0, 1);
    let mut allocator = allocator("", 90 * MIB);
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    let Ok(Progress::NeedsSegment(pending)) = allocator.begin_uncached(40 * MIB, STREAM, false)
    else {
        panic!("nothing is cached");
    };
    let answer = allocator.driver_mut().malloc(40 * MIB);
    allocator.release_pool(POOL).unwrap();
    allocator.empty_cache().unwrap();
    let error = allocator.resume(pending, answer).map(drop).unwrap_err();
    assert_eq!(error, PoolError::Unknown(POOL).into());
    assert_eq!(allocator.driver().used(), 0);
    allocator.check().unwrap();
}

/// A call of a program.
#[derive(Clone, Debug)]
enum Call {
    Malloc(u64),
    Free(prop::sample::Index),
    /// The device answers the oldest request that waits for it.
    Answer,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        3 => (1..60 * MIB).prop_map(Call::Malloc),
        1 => (1..2 * MIB).prop_map(Call::Malloc),
        2 => any::<prop::sample::Index>().prop_map(Call::Free),
        3 => Just(Call::Answer),
    ];
    prop::collection::vec(call, 1..80)
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "max_split_size_mb:32",
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
    ])
}

/// A request made in parts without anything in between.
fn malloc_in_parts(allocator: &mut PyTorch<SimDevice>, bytes: u64) -> Result<DeviceAddr, Error> {
    if let Some(addr) = allocator.malloc_cached(bytes, STREAM)? {
        return Ok(addr);
    }
    let mut progress = allocator.begin_uncached(bytes, STREAM, false)?;
    loop {
        progress = match progress {
            Progress::Done(addr) => return Ok(addr),
            Progress::NeedsSegment(pending) => {
                let answer = allocator.driver_mut().malloc(pending.segment_size());
                allocator.resume(pending, answer)?
            }
        };
    }
}

proptest! {
    #[test]
    fn parts_decide_as_the_whole(conf in settings(), calls in calls()) {
        let (mut whole, mut parts) = (allocator(conf, 256 * MIB), allocator(conf, 256 * MIB));
        let mut live = Vec::new();
        for call in calls {
            match call {
                Call::Malloc(bytes) => {
                    let expected = whole.malloc(bytes, STREAM);
                    prop_assert_eq!(&malloc_in_parts(&mut parts, bytes), &expected);
                    live.extend(expected);
                }
                Call::Free(which) if !live.is_empty() => {
                    let addr = live.swap_remove(which.index(live.len()));
                    whole.free(addr).unwrap();
                    parts.free(addr).unwrap();
                }
                _ => {}
            }
            prop_assert_eq!(whole.stats(), parts.stats());
        }
    }

    /// Whatever others do between the parts, no two allocations overlap and nothing is lost.
    #[test]
    fn requests_may_wait_for_the_device(conf in settings(), calls in calls()) {
        let mut allocator = allocator(conf, 256 * MIB);
        let mut live: Vec<DeviceAddr> = Vec::new();
        let mut waiting: Vec<Pending> = Vec::new();
        let answers = std::iter::repeat_n(Call::Answer, 400);
        for call in calls.into_iter().chain(answers) {
            let progress = match call {
                Call::Malloc(bytes) => match allocator.malloc_cached(bytes, STREAM).unwrap() {
                    Some(addr) => Ok(Progress::Done(addr)),
                    None => allocator.begin_uncached(bytes, STREAM, false),
                },
                Call::Free(which) if !live.is_empty() => {
                    allocator.free(live.swap_remove(which.index(live.len()))).unwrap();
                    continue;
                }
                Call::Answer if !waiting.is_empty() => {
                    let pending = waiting.remove(0);
                    let answer = allocator.driver_mut().malloc(pending.segment_size());
                    allocator.resume(pending, answer)
                }
                _ => continue,
            };
            match progress {
                Ok(Progress::Done(addr)) => live.push(addr),
                Ok(Progress::NeedsSegment(pending)) => waiting.push(pending),
                Err(error) => prop_assert!(matches!(error, Error::OutOfMemory(_)), "{}", error),
            }
            allocator.check().unwrap();
        }
        prop_assert!(waiting.is_empty());
        for addr in live {
            allocator.free(addr).unwrap();
        }
        allocator.empty_cache().unwrap();
        prop_assert_eq!(allocator.stats().reserved_bytes.all().current, 0);
        let memory = allocator.driver_mut().memory_info().unwrap();
        prop_assert_eq!(memory.free, memory.total);
    }
}
