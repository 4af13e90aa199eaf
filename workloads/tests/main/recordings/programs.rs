//! What is found in recordings of random programs, which may lack their beginning, the pools, the stacks, the settings, or
//! be altered: `cases/programs.txt` says how often what is found for each kind of program.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::v2;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::calls::calls;
use coalesce_workloads::formats::snapshot::verify::{Known, verify, verify_by_all};

use super::random::{Kind, PLAIN, Program};
use crate::altered::{Outcomes, alter};
use crate::cases;
use crate::common::{EXPANDABLE, MIB, without_first};

/// What is found in a recording beside the verification and the workload.
fn add_properties(outcomes: &mut Outcomes, recording: &Recording) {
    let coverage = recording.coverage();
    outcomes.add(format!("begin as {:?}", coverage.extent), 1);
    outcomes.add("MiB reserved at peaks", coverage.peak_reserved_bytes >> 20);
    outcomes.add("limits", recording.memory_limit().is_some().into());
    if let Some(addresses) = recording.address_policy() {
        outcomes.add(format!("with addresses {}", addresses.name()), 1);
    }
    for collects in [false, true] {
        for call in calls(recording, collects) {
            outcomes.add(format!("calls {:?}", call.kind), 1);
        }
    }
}

/// The releases whose rules explain a recording. The verification by all is that by the first that does.
fn add_releases(outcomes: &mut Outcomes, recording: &Recording, known: Known) {
    let by_all = verify_by_all(recording, known, |releases, verify| {
        releases.iter().map(verify).collect()
    });
    let (verification, releases) = by_all.unwrap();
    assert_eq!(Ok(verification), verify(recording, known));
    let releases: Vec<String> = releases.iter().map(ToString::to_string).collect();
    outcomes.add(format!("explained by {}", releases.join(" ")), 1);
}

/// What is found in the recordings of so many programs.
fn found_in(kind: Kind, programs: u64) -> String {
    let mut outcomes = Outcomes::default();
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
        let [one, two] = lost.map(|lost| without_first(&recording, lost));
        for recording in [recording, one, two, altered] {
            outcomes.add_recording(&recording, known);
            add_properties(&mut outcomes, &recording);
        }
    }
    outcomes.text()
}

/// The kind that a case describes: `100 programs, 60 MiB, 2 streams, pools`.
fn kind(case: &str) -> (Kind, u64) {
    let (mut kind, mut programs) = (PLAIN, 0);
    for word in case.split(", ") {
        match word.split_once(' ').unwrap_or((word, "")) {
            (number, "programs") => programs = number.parse().unwrap(),
            (number, "MiB") => kind.memory = number.parse::<u64>().unwrap() * MIB,
            (number, "streams") => kind.streams = number.parse().unwrap(),
            ("pools", _) => kind.pools = true,
            ("limits", _) => kind.limits = true,
            ("expandable", _) => kind.conf = EXPANDABLE,
            ("collector", _) => {
                kind.conf = "garbage_collection_threshold:0.5,per_process_memory_fraction:0.75";
            }
            ("unsplit", _) => kind.conf = "max_split_size_mb:21,roundup_power2_divisions:4",
            ("PyTorch", "2.13") => kind.release = v2(13),
            ("downwards", _) => kind.addresses = AddressPolicy::Down,
            _ => panic!("no property of programs: {word}"),
        }
    }
    (kind, programs)
}

#[test]
fn programs_are_judged_as_recorded() {
    cases::check("tests/cases/programs.txt", |case| {
        let (kind, programs) = kind(case);
        found_in(kind, programs)
    });
}
