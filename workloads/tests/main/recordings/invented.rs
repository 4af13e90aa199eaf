//! Recordings of random programs run by the reference itself: verification must reproduce every
//! decision, from the first entry and from any later one, as if a ring buffer had dropped the rest.

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::release::{Release, two};
use coalesce_alloc::settings::Settings;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};
use coalesce_workloads::formats::snapshot::{Frame, Recording, Stack, StackId};

/// The configuration of a recorded run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub release: Release,
    pub addresses: AddressPolicy,
    pub conf: &'static str,
    /// Device memory in MiB.
    pub memory: u64,
    /// Whether the program uses several streams, and the device lags behind.
    pub streams: bool,
    /// Whether some requests go to a private pool.
    pub private_pool: bool,
    /// Whether stacks are recorded.
    pub stacks: bool,
}

pub const PLAIN: Setup = Setup {
    release: Release::DEFAULT,
    addresses: AddressPolicy::Up,
    conf: "",
    memory: 1 << 20,
    streams: false,
    private_pool: false,
    stacks: true,
};

/// The callers in the stacks of entries: of a malloc or free, and of `empty_cache`.
const CALLERS: [&str; 2] = ["work", "empty_cache"];

/// A recording of a random program.
pub fn record(setup: Setup, seed: u64) -> Recording {
    let mut rng = Rng::new(seed);
    let config = SimConfig {
        hold_events: setup.streams,
        address_policy: setup.addresses,
        ..SimConfig::with_capacity(setup.memory << 20)
    };
    let settings = Settings::of_release(setup.release);
    let settings = settings.started_with(setup.conf).unwrap();
    let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
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
pub fn without_first(recording: &Recording, count: usize) -> Recording {
    let mut recording = recording.clone();
    recording.entries.drain(..count);
    if !recording.entry_stacks.is_empty() {
        recording.entry_stacks.drain(..count);
    }
    recording
}

fn assert_exact(setup: Setup, seed: u64, recording: &Recording, lost: usize) -> Verification {
    let verdict = verify(&without_first(recording, lost), Known::default());
    let what = format!("{setup:?}, seed {seed}, {lost} entries lost");
    let verdict = verdict.unwrap_or_else(|error| panic!("{what}: {error}"));
    let difference = verdict
        .difference
        .as_ref()
        .map_or(String::new(), ToString::to_string);
    // The last entries of a recording may contain no allocation.
    let is_same = verdict.difference.is_none() && verdict.is_end_equal;
    assert!(is_same, "{what}: {verdict:#?}\n{difference}");
    assert_eq!(verdict.exact, verdict.allocations, "{what}");
    assert_eq!(verdict.predicted, verdict.segment_events, "{what}");
    verdict
}

fn assert_reproduced(setup: Setup) -> Verification {
    let mut sum = Verification::default();
    for seed in 0..20 {
        let recording = record(setup, seed);
        let mut lost = 0;
        while lost < recording.entries.len() {
            let verdict = assert_exact(setup, seed, &recording, lost);
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
fn on_a_roomy_device() {
    for conf in ["", "roundup_power2_divisions:4", "expandable_segments:True"] {
        let verdict = assert_reproduced(Setup { conf, ..PLAIN });
        assert_eq!((verdict.retries, verdict.ooms), (0, 0));
    }
}

/// Where a segment lies below earlier ones, releases choose differently between blocks of one size.
#[test]
fn by_the_rules_of_the_release_that_explains_it() {
    for release in [two(12), two(13)] {
        let setup = Setup {
            release,
            addresses: AddressPolicy::Down,
            ..PLAIN
        };
        let mut named = 0;
        for seed in 0..20 {
            let verdict = assert_exact(setup, seed, &record(setup, seed), 0);
            named += verdict.remarks.len();
        }
        assert!(
            named > 0,
            "{release} is never told from {}",
            Release::DEFAULT
        );
    }
}

#[test]
fn with_retries_and_ooms() {
    for conf in ["", "max_split_size_mb:24", "expandable_segments:True"] {
        let memory = 160;
        let verdict = assert_reproduced(Setup {
            conf,
            memory,
            ..PLAIN
        });
        assert!(verdict.retries > 0 && verdict.ooms > 0, "{conf}");
    }
}

/// Excludes expandable segments on a small device: there several nearly full address ranges could hold
/// the same blocks, and the recording does not determine which.
#[test]
fn with_lagging_streams() {
    for (conf, memory) in [
        ("", 1 << 20),
        ("", 256),
        ("expandable_segments:True", 1 << 20),
    ] {
        let streams = true;
        assert_reproduced(Setup {
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
    assert_reproduced(Setup {
        private_pool,
        ..PLAIN
    });
}

/// Only from the first entry: the recording lacks how long blocks had been free before it.
#[test]
fn with_garbage_collection_under_an_unknown_limit() {
    let conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.75";
    let setup = Setup {
        conf,
        memory: 512,
        ..PLAIN
    };
    let mut found = 0;
    for seed in 0..20 {
        let verdict = assert_exact(setup, seed, &record(setup, seed), 0);
        found += usize::from(verdict.limit.is_some());
    }
    assert!(found > 0);
}

#[test]
fn without_stacks() {
    let stacks = false;
    for memory in [1 << 20, 160] {
        assert_reproduced(Setup {
            memory,
            stacks,
            ..PLAIN
        });
    }
}
