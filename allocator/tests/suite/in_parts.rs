//! A malloc in parts, with and without other calls in between. `transcripts/in_parts.txt` has its rules step by step.

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, Driver as _, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::pytorch::in_parts::{Pending, Progress};
use coalesce_alloc::settings::Settings;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const STREAM: StreamId = StreamId::DEFAULT;

fn allocator(conf: &str) -> PyTorch<SimDevice> {
    let device = SimDevice::new(&SimConfig::with_capacity(256 * MIB));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
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
        let (mut whole, mut parts) = (allocator(conf), allocator(conf));
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
        let mut allocator = allocator(conf);
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
