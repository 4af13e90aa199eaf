//! Recordings of random programs run by the reference itself: verification must reproduce every
//! decision, from the first entry and from any later one, as if a ring buffer had dropped the rest.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::{Release, v2};
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};

use super::random::{self, Kind, Program};
use crate::common::{EXPANDABLE, MIB, without_first};

/// A recording without its beginning has one possible start: no segment has the address of an earlier one, and no snapshot
/// tells the exact size of blocks that were in use before.
pub const PLAIN: Kind = Kind {
    addresses: AddressPolicy::Up,
    snapshots: false,
    ..random::PLAIN
};

/// A recording of a random program.
pub fn record(kind: Kind, seed: u64) -> Recording {
    let mut program = Program::new(kind, seed);
    program.run(400);
    program.recorded()
}

fn assert_exact(kind: Kind, seed: u64, recording: &Recording, lost: usize) -> Verification {
    let verdict = verify(&without_first(recording, lost), Known::default());
    let what = format!("{kind:?}, seed {seed}, {lost} entries lost");
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

fn assert_reproduced(kind: Kind) -> Verification {
    let mut sum = Verification::default();
    for seed in 0..20 {
        let recording = record(kind, seed);
        let mut lost = 0;
        while lost < recording.entries.len() {
            let verdict = assert_exact(kind, seed, &recording, lost);
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
    for conf in ["", "roundup_power2_divisions:4", EXPANDABLE] {
        let verdict = assert_reproduced(Kind { conf, ..PLAIN });
        assert_eq!((verdict.retries, verdict.ooms), (0, 0));
    }
}

/// Where a segment lies below earlier ones, releases choose differently between blocks of one size.
#[test]
fn by_the_rules_of_the_release_that_explains_it() {
    for release in [v2(12), v2(13)] {
        let kind = Kind {
            release,
            addresses: AddressPolicy::Down,
            ..PLAIN
        };
        let mut named = 0;
        for seed in 0..20 {
            let verdict = assert_exact(kind, seed, &record(kind, seed), 0);
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
    for conf in ["", "max_split_size_mb:24", EXPANDABLE] {
        let verdict = assert_reproduced(Kind {
            conf,
            memory: 160 * MIB,
            largest: 40 * MIB,
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
        ("", PLAIN.memory),
        ("", 256 * MIB),
        (EXPANDABLE, PLAIN.memory),
    ] {
        let streams = 2;
        assert_reproduced(Kind {
            conf,
            memory,
            streams,
            largest: 64 * MIB,
            ..PLAIN
        });
    }
}

/// Only from the first entry: the recording lacks how long blocks had been free before it.
#[test]
fn with_garbage_collection_under_an_unknown_limit() {
    let conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.75";
    let kind = Kind {
        conf,
        memory: 100 * MIB,
        ..PLAIN
    };
    let mut found = 0;
    for seed in 0..20 {
        let verdict = assert_exact(kind, seed, &record(kind, seed), 0);
        found += usize::from(verdict.limit.is_some());
    }
    assert!(found > 0);
}

#[test]
fn without_stacks() {
    for memory in [PLAIN.memory, 70 * MIB] {
        assert_reproduced(Kind {
            memory,
            stacks: false,
            ..PLAIN
        });
    }
}
