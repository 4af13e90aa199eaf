//! Recordings of random programs that the reference itself ran: every decision must come out again, from
//! the first entry on and from any other, as if a ring had lost those before.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::mempool::MempoolId;
use coalesce_alloc::pytorch::DeviceCachingAllocator;
use coalesce_alloc::settings::Settings;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};
use coalesce_workloads::formats::snapshot::{Frame, Recording, Stack, StackId};

/// What a program is run with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub conf: &'static str,
    /// MiB of memory.
    pub memory: u64,
    /// Whether streams are used, and fall behind.
    pub streams: bool,
    /// Whether some requests go to a private pool.
    pub private_pool: bool,
    /// Whether stacks are recorded.
    pub stacks: bool,
}

pub const PLAIN: Setup = Setup {
    conf: "",
    memory: 1 << 20,
    streams: false,
    private_pool: false,
    stacks: true,
};

/// The stacks of entries: none, that of a malloc or free, that of `empty_cache`.
const CALLERS: [&str; 2] = ["work", "empty_cache"];

/// A recording of a random program.
pub fn record(setup: Setup, seed: u64) -> Recording {
    let mut rng = Rng::new(seed);
    let config = SimConfig {
        hold_events: setup.streams,
        ..SimConfig::with_capacity(setup.memory << 20)
    };
    let settings = Settings::from_conf(setup.conf).unwrap();
    let mut allocator = DeviceCachingAllocator::new(SimDevice::new(&config), settings);
    allocator.record_history(Some(HistoryOptions::default()));
    let mut live = Vec::new();
    let mut entry_stacks = Vec::new();
    let largest = (setup.memory << 20) / 4;
    for _ in 0..400 {
        let mut caller = StackId(1);
        match rng.below(100) {
            0 => {
                caller = StackId(2);
                allocator.empty_cache().unwrap();
            }
            1..50 => {
                let bytes = rng.log_uniform(1, largest.min(64 << 20));
                let stream = StreamId::nth(if setup.streams {
                    rng.below(2) as u32
                } else {
                    0
                });
                let pool = MempoolId(0, 1);
                let private = setup.private_pool && rng.happens(1, 4);
                if private {
                    allocator
                        .begin_allocate_to_pool(pool, Box::new(|_| true))
                        .unwrap();
                }
                match allocator.malloc(bytes, stream) {
                    Ok(addr) => live.push(addr),
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                if private {
                    allocator.end_allocate_to_pool(pool).unwrap();
                }
            }
            50..55 if setup.streams => {
                for k in 0..3 {
                    let streams = allocator.driver_mut().streams_mut();
                    streams.complete(StreamId::nth(k), rng.below(3));
                }
            }
            _ if !live.is_empty() => {
                let addr = live.swap_remove(rng.below(live.len() as u64) as usize);
                if setup.streams && rng.happens(1, 4) {
                    allocator.record_stream(addr, StreamId::nth(2)).unwrap();
                }
                allocator.free(addr).unwrap();
            }
            _ => {}
        }
        entry_stacks.resize(allocator.history().count(), caller);
    }
    let callers = CALLERS.map(|name| Stack {
        frames: vec![
            Frame {
                name: name.to_owned(),
                filename: "program.py".to_owned(),
                line: 1,
            }
            .into(),
        ],
    });
    let mut recording = Recording {
        conf: Some(setup.conf.to_owned()),
        entries: allocator.history().copied().collect(),
        segments: allocator.segments(),
        ..Recording::default()
    };
    if setup.stacks {
        recording.stacks = [vec![Stack::default()], callers.to_vec()].concat();
        recording.entry_stacks = entry_stacks;
    }
    recording
}

/// The recording without its first entries.
fn without_first(recording: &Recording, count: usize) -> Recording {
    let mut recording = recording.clone();
    recording.entries.drain(..count);
    if !recording.entry_stacks.is_empty() {
        recording.entry_stacks.drain(..count);
    }
    recording
}

fn ensure_exact(setup: Setup, seed: u64, recording: &Recording, lost: usize) -> Verification {
    let verdict = verify(&without_first(recording, lost), Known::default());
    let what = format!("{setup:?}, seed {seed}, {lost} entries lost");
    let verdict = verdict.unwrap_or_else(|error| panic!("{what}: {error}"));
    let difference = verdict
        .difference
        .as_ref()
        .map_or(String::new(), ToString::to_string);
    assert!(verdict.is_exact(), "{what}: {verdict:#?}\n{difference}");
    assert_eq!(verdict.exact, verdict.allocations, "{what}");
    assert_eq!(verdict.predicted, verdict.segment_events, "{what}");
    verdict
}

fn comes_out_again(setup: Setup) -> Verification {
    let mut sum = Verification::default();
    for seed in 0..20 {
        let recording = record(setup, seed);
        let mut lost = 0;
        while lost < recording.entries.len() {
            let verdict = ensure_exact(setup, seed, &recording, lost);
            sum.retries += verdict.retries;
            sum.ooms += verdict.ooms;
            sum.exact += verdict.exact;
            lost += 29;
        }
    }
    assert!(sum.exact > 1000);
    sum
}

#[test]
fn with_room_for_everything() {
    for conf in ["", "roundup_power2_divisions:4", "expandable_segments:True"] {
        let verdict = comes_out_again(Setup { conf, ..PLAIN });
        assert_eq!((verdict.retries, verdict.ooms), (0, 0));
    }
}

#[test]
fn with_retries_and_failures() {
    for conf in ["", "max_split_size_mb:24", "expandable_segments:True"] {
        let memory = 160;
        let verdict = comes_out_again(Setup {
            conf,
            memory,
            ..PLAIN
        });
        assert!(verdict.retries > 0 && verdict.ooms > 0, "{conf}");
    }
}

/// On a small device with expandable segments more is open than can be found out: several ranges of
/// addresses for the same blocks, which all are nearly used up.
#[test]
fn with_streams_that_fall_behind() {
    for (conf, memory) in [
        ("", 1 << 20),
        ("", 256),
        ("expandable_segments:True", 1 << 20),
    ] {
        let streams = true;
        comes_out_again(Setup {
            conf,
            memory,
            streams,
            ..PLAIN
        });
    }
}

#[test]
fn with_a_private_pool() {
    let private_pool = true;
    comes_out_again(Setup {
        private_pool,
        ..PLAIN
    });
}

/// From the first entry only: how long blocks had been free before it is not recorded.
#[test]
fn with_a_garbage_collector_whose_limit_nobody_told() {
    let conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.75";
    let setup = Setup {
        conf,
        memory: 512,
        ..PLAIN
    };
    let mut found = 0;
    for seed in 0..20 {
        let verdict = ensure_exact(setup, seed, &record(setup, seed), 0);
        found += usize::from(verdict.limit.is_some());
    }
    assert!(found > 0);
}

#[test]
fn without_stacks() {
    let stacks = false;
    for memory in [1 << 20, 160] {
        comes_out_again(Setup {
            memory,
            stacks,
            ..PLAIN
        });
    }
}
