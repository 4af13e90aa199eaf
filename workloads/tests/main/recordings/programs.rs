//! What is found in recordings of random programs. They may lack their beginning, the pools, the stacks, the settings,
//! or be altered.
//!
//! Whatever is found in a recording goes into a fingerprint. One that differs says that some answer differs. If that
//! is intended, write the new one here.

use std::thread;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::v2;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::calls::calls;
use coalesce_workloads::formats::snapshot::verify::{Known, verify, verify_by_all};

use super::invented::without_first;
use super::random::{Kind, PLAIN, Program};
use crate::altered::{add_recording_as, alter};
use crate::common::{EXPANDABLE, Fingerprint, MIB};

/// What is found in a recording beside the verification and the workload.
fn add_properties(outcomes: &mut Fingerprint, recording: &Recording) {
    outcomes.add(&format!("{:?}\n", recording.coverage()));
    outcomes.add(&format!("{:?}\n", recording.memory_limit()));
    outcomes.add(&format!("{:?}\n", recording.address_policy()));
    for collects in [false, true] {
        for call in calls(recording, collects) {
            outcomes.add(&format!("{:?} {:?}\n", call.kind, call.entries()));
        }
    }
}

/// The releases whose rules explain a recording. The verification by all is that by the first that does.
fn add_releases(outcomes: &mut Fingerprint, recording: &Recording, known: Known) {
    let by_all = verify_by_all(recording, known, |releases, verify| {
        releases.iter().map(verify).collect()
    });
    let (verification, releases) = by_all.unwrap();
    assert_eq!(Ok(verification), verify(recording, known));
    outcomes.add(&format!("{releases:?}\n"));
}

/// The recording without some of its first entries.
fn later(recording: &Recording, lost: usize) -> Recording {
    let mut later = without_first(recording, lost);
    if !later.entry_pools.is_empty() {
        later.entry_pools.drain(..lost);
    }
    later
}

/// A fingerprint of what is found in the recordings of so many programs.
fn found_in(kind: Kind, programs: u64) -> String {
    let mut outcomes = Fingerprint::new();
    for seed in 0..programs {
        let mut program = Program::new(kind, seed);
        program.run(60 + 20 * (seed % 5));
        let recording = program.recording();
        let rng = &mut program.rng;
        let known = Known {
            capacity: rng.happens(1, 4).then_some(kind.memory),
            fraction: None,
            release: rng.happens(1, 2).then_some(kind.release),
            until: None,
        };
        let known = Known {
            fraction: known.capacity.filter(|_| rng.happens(1, 2)).map(|_| 0.75),
            ..known
        };
        let lost = [(); 2].map(|()| rng.below(recording.entries.len() as u64) as usize);
        let mut altered = recording.clone();
        alter(&mut altered, rng);
        add_releases(&mut outcomes, &recording, known);
        let only_release = Known {
            release: known.release,
            ..Known::default()
        };
        // Pools that are not recorded may be found or not. So may the addresses that a failed request reserves for an
        // expandable segment.
        let is_exact = verify(&recording, only_release).unwrap().is_exact();
        let knows_pools = !kind.pools || !recording.entry_pools.is_empty();
        let knows_ranges = kind.conf != EXPANDABLE || kind.memory == PLAIN.memory;
        assert!(is_exact || !knows_pools || !knows_ranges, "seed {seed}");
        let [one, two] = lost.map(|lost| later(&recording, lost));
        for recording in [recording, one, two, altered] {
            add_recording_as(&mut outcomes, &recording, known);
            add_properties(&mut outcomes, &recording);
        }
    }
    outcomes.text()
}

const COLLECTED: &str = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.75";

/// The kinds of programs, how many of each are run, and the fingerprint of what is found in their recordings.
fn kinds() -> [(&'static str, Kind, u64, &'static str); 12] {
    let of = |memory: u64| Kind {
        memory: memory * MIB,
        ..PLAIN
    };
    let pools = Kind {
        pools: true,
        ..PLAIN
    };
    let expandable = Kind {
        conf: EXPANDABLE,
        streams: 2,
        ..PLAIN
    };
    let unsplit = Kind {
        conf: "max_split_size_mb:21,roundup_power2_divisions:4",
        pools: true,
        ..of(100)
    };
    let earlier = Kind {
        release: v2(13),
        addresses: AddressPolicy::Down,
        ..pools
    };
    [
        ("a roomy device", PLAIN, 100, "30b217c3e1982ac9"),
        ("a small device", of(60), 100, "8ca731f68fa17e77"),
        (
            "a small device with streams",
            Kind {
                streams: 3,
                ..of(80)
            },
            100,
            "48268f1fc516e09e",
        ),
        ("pools", pools, 100, "a33f8b3120125205"),
        (
            "pools and streams",
            Kind {
                streams: 2,
                ..pools
            },
            40,
            "e17a94d2db730b5c",
        ),
        (
            "pools on a small device",
            Kind {
                pools: true,
                ..of(90)
            },
            100,
            "a52a63691b694a65",
        ),
        (
            "changing limits",
            Kind {
                limits: true,
                ..of(1 << 16)
            },
            100,
            "c1b61aa83290616a",
        ),
        ("expandable segments", expandable, 100, "45e72691bbc2d237"),
        (
            "expandable segments on a small device",
            Kind {
                pools: true,
                memory: 160 * MIB,
                ..expandable
            },
            100,
            "94e7876163d9e92f",
        ),
        (
            "a garbage collector",
            Kind {
                conf: COLLECTED,
                ..of(70)
            },
            100,
            "02f6d01e60d19ce6",
        ),
        ("unsplit blocks", unsplit, 100, "19b4dcf002f505f4"),
        ("an earlier release", earlier, 100, "8ae54e56168fa9b6"),
    ]
}

#[test]
fn programs_are_judged_as_recorded() {
    thread::scope(|scope| {
        for (name, kind, programs, expected) in kinds() {
            scope.spawn(move || assert_eq!(found_in(kind, programs), expected, "{name}"));
        }
    });
}
