//! The evidence of programs as text: `cases/programs.txt`.

use std::fmt::Write;

use coalesce_alloc::history::Action::{Alloc, FreeCompleted};
use coalesce_workloads::cases;

use super::*;
use crate::diagnose::improvement::Improvement;
use crate::diagnose::testing::{GIB, MIB, ROOMY, Scene, case, hold, recording};

#[test]
fn the_evidence_of_programs() {
    cases::check("src/diagnose/evidence/cases/programs.txt", |case| {
        let first = case.lines().next().unwrap();
        match first.strip_prefix("against") {
            Some(conf) => case::gather(&case[first.len()..], |it| improvement(it, conf.trim())),
            None => case::gather(case, shown),
        }
    });
}

fn improvement(evidence: &Evidence<'_>, conf: &str) -> String {
    let found = Improvement::of(evidence, conf);
    found.map_or("no improvement".to_owned(), |found| {
        format!("saves {}: {}", found.saved / MIB, found.sentence)
    })
}

fn shown(evidence: &Evidence<'_>) -> String {
    let mib = |bytes: u64| bytes / MIB;
    let peak = &evidence.peak;
    let mut live: Vec<usize> = peak.live.values().copied().collect();
    live.sort_unstable();
    let free: Vec<u64> = peak.free_blocks().map(mib).collect();
    let mut text = format!(
        "peak of {} at event {}: ",
        mib(evidence.peak_level().reserved),
        peak.event
    );
    let _ = writeln!(
        text,
        "live {live:?}, free {free:?}, fails {}",
        evidence.failure.is_some()
    );
    let (limit, available) = (evidence.limit().map(mib), mib(evidence.available()));
    let _ = write!(
        text,
        "limit {limit:?}, available {available}, fails {}",
        evidence.tally.ooms
    );
    let roomy = evidence.with_room().unwrap();
    let reserved = mib(roomy.measures.peak_reserved_bytes);
    let _ = writeln!(text, "; with room {reserved}, fails {}", roomy.ooms);
    let requests = evidence.allocations().map(|(index, a)| (index, a.bytes));
    // A request that there is not counts nowhere.
    for site in evidence.call_sites(requests.chain([(9_999, 1)])) {
        let _ = writeln!(text, "{site}, frames {}", site.frames.len());
    }
    let requests = || {
        evidence
            .allocations()
            .map(|(index, _)| index)
            .chain([9_999])
    };
    let entries: Vec<_> = requests()
        .filter_map(|index| evidence.entry_of(index))
        .collect();
    let stacks: Vec<_> = requests()
        .filter_map(|index| evidence.stack_of(index))
        .collect();
    let first = evidence.event_at(0);
    text + &format!("recorded {entries:?} with {stacks:?}, the first event {first:?}")
}

#[test]
fn bytes_that_matter() {
    let is_significant = |held: u64, bytes: u64| {
        ROOMY.gather(
            move |program| hold(program, 1, held),
            |evidence| evidence.is_significant(bytes),
        )
    };
    assert!(is_significant(MIB, 2 * MIB) && !is_significant(MIB, 2 * MIB - 1));
    assert!(is_significant(1000 * MIB, 10 * MIB) && !is_significant(1000 * MIB, 10 * MIB - 1));
}

#[test]
fn sizes_of_blocks_and_segments() {
    ROOMY.gather(
        |program| hold(program, 1, MIB),
        |evidence| {
            assert_eq!(evidence.block_size(600), Some(1024));
            assert_eq!(evidence.segment_size(600), Some(2 * MIB));
            assert_eq!(evidence.segment_size(9 * MIB), Some(20 * MIB));
            assert_eq!(evidence.segment_size(11 * MIB), Some(12 * MIB));
            let request = evidence.log.allocations[0];
            assert_eq!(evidence.kind_of(&request), Some(PoolKind::Small));
        },
    );
}

#[test]
fn settings_of_other_replays() {
    let scene = Scene::with_conf("max_split_size_mb:64,roundup_power2_divisions:2");
    scene.gather(
        |program| hold(program, 1, MIB),
        |evidence| {
            let expandable = "roundup_power2_divisions:2,expandable_segments:True";
            assert_eq!(evidence.expandable(), expandable);
            let found = evidence.conf_without("roundup_power2_divisions");
            assert_eq!(found, "max_split_size_mb:64");
        },
    );
}

/// The program frees two tensors between the second request and the third.
#[test]
fn events_at_times_of_the_recording() {
    let mut recorded = recording(&[
        (Alloc, MIB, MIB),
        (Alloc, 2 * MIB, MIB),
        (FreeCompleted, MIB, MIB),
        (FreeCompleted, 2 * MIB, MIB),
        (Alloc, 3 * MIB, MIB),
    ]);
    for (entry, time_us) in recorded.entries.iter_mut().zip([10, 20, 25, 27, 30]) {
        entry.time_us = time_us;
    }
    let events = |before: u64| {
        Scene::recorded(&recorded).gather(
            move |program| {
                hold(program, before, GIB);
                let two = [MIB; 2].map(|bytes| program.alloc(bytes, "mm"));
                program.free_all(two);
                program.scratch(MIB, "mm");
            },
            |evidence| {
                let times = [0, 10, 11, 20, 21, 26, 28, 30, 31];
                let entries: Vec<_> = (0..4).map(|index| evidence.entry_of(index)).collect();
                (times.map(|time| evidence.event_at(time).unwrap()), entries)
            },
        )
    };
    let entries = [Some(0), Some(1), Some(4), None];
    assert_eq!(events(0), ([0, 0, 1, 1, 2, 3, 4, 4, 5], entries.to_vec()));
    // A block that was live when the recording began.
    let entries = [None, Some(0), Some(1), Some(4)];
    assert_eq!(events(1), ([1, 1, 2, 2, 3, 4, 5, 5, 6], entries.to_vec()));
}
