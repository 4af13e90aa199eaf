//! Impossible recordings cause an error or a reported difference, never a panic.

use std::time::{Duration, Instant};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::verify::{Known, Verdict, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;

use super::invented::{PLAIN, record};
use super::random::Kind;
use crate::common::{MIB, assert_contains};

fn one() -> Recording {
    let memory = 100 * MIB;
    record(
        Kind {
            memory,
            streams: 2,
            ..PLAIN
        },
        7,
    )
}

/// The first entry of a kind, well inside the recording.
fn place(recording: &Recording, action: Action) -> usize {
    let entries = recording.entries.iter().enumerate().skip(100);
    let mut found = entries.filter(|(_, entry)| entry.action == action);
    found.next().unwrap().0
}

fn error_of(recording: &Recording) -> String {
    RecordedWorkload::new("", recording)
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_name_the_impossible_entry_and_the_reason() {
    let good = one();
    let index = place(&good, Action::Alloc);
    let mut nowhere = good.clone();
    nowhere.entries[index].addr = DeviceAddr(4096);
    let error = error_of(&nowhere);
    for words in [
        &format!("entry {index} (alloc of")[..],
        "0x1000",
        "no segment is there",
    ] {
        assert!(error.contains(words), "{error}");
    }
    let mut twice = good.clone();
    twice.entries.insert(index, good.entries[index]);
    assert_contains(&error_of(&twice), "no block in use begins there");
    let mut vast = good.clone();
    let index = place(&good, Action::FreeCompleted);
    vast.entries[index].size = u64::MAX;
    assert_contains(&error_of(&vast), "no block can have this size");
    let mut taken = good.clone();
    let index = place(&good, Action::SegmentAlloc);
    taken.entries[index].size += 512;
    assert_contains(&error_of(&taken), "segment after it has");
    let mut wrong = good.clone();
    wrong.conf = Some("max_split_size_mb:1".to_owned());
    assert!(
        error_of(&wrong).starts_with("the settings: "),
        "{}",
        error_of(&wrong)
    );
    let mut overlapping = good;
    let copy = overlapping.segments[0].clone();
    overlapping.segments.insert(0, copy);
    assert!(error_of(&overlapping).contains("the state at the end is impossible"));
}

/// A segment of which only the return is recorded, at an address where no segment can lie.
#[test]
fn an_impossible_initial_state_is_reported() {
    let returned = TraceEntry {
        action: Action::SegmentFree,
        addr: DeviceAddr(1000),
        size: 2 << 20,
        stream: StreamId::DEFAULT,
        time_us: 0,
    };
    let recording = Recording {
        entries: vec![returned],
        ..Recording::default()
    };
    let error = error_of(&recording);
    let is_told = error.starts_with("the state at the start is impossible: ");
    assert!(is_told, "{error}");
    assert!(error.contains("multiples of 512"), "{error}");
}

/// Two blocks are exchanged: the final state is the same, but best fit would not choose that.
#[test]
fn an_exchanged_block_is_found() {
    let mut recording = record(PLAIN, 3);
    let size = |entry: usize| recording.entries[entry].size.next_multiple_of(512);
    let allocs: Vec<usize> = (0..recording.entries.len())
        .filter(|&index| recording.entries[index].action == Action::Alloc)
        .collect();
    let pair = allocs.windows(2).find(|pair| {
        let adjacent = pair[1] == pair[0] + 1;
        adjacent && size(pair[0]) == size(pair[1])
    });
    let &[first, second] = pair.unwrap() else {
        panic!("a pair has two");
    };
    let (one, other) = (
        recording.entries[first].addr,
        recording.entries[second].addr,
    );
    recording.entries[first].addr = other;
    recording.entries[second].addr = one;
    let verdict = verify(&recording, Known::default()).unwrap();
    let difference = verdict.difference.unwrap();
    assert_eq!(difference.entry, Some(first));
    assert!(difference.candidates.iter().any(|block| block.is_ours));
    let told = difference.to_string();
    for words in ["recorded", "replayed", "taken by both", &other.to_string()] {
        assert!(told.contains(words), "{told}");
    }
}

/// The verifier keeps a table of pages for each stream; no file makes it use all memory.
#[test]
fn address_ranges_beyond_any_device_are_refused() {
    const TIB: u64 = 1 << 40;
    const PAGE: u64 = 20 << 20;
    let run = |stream: u32, offset: u64, bytes: u64| {
        let address = DeviceAddr(4 * TIB * (1 + u64::from(stream)) + offset);
        let block = BlockInfo::new(address, bytes, bytes, BlockState::ActiveAllocated);
        SegmentInfo {
            device: 0,
            address,
            stream: StreamId::nth(stream),
            kind: PoolKind::Large,
            pool: MempoolId::DEFAULT,
            is_expandable: true,
            blocks: vec![block],
        }
    };
    let far = TIB / PAGE * PAGE;
    let spread = |streams: u32| Recording {
        segments: (0..streams)
            .flat_map(|stream| [run(stream, 0, PAGE), run(stream, far, PAGE)])
            .collect(),
        ..Recording::default()
    };
    let possible = verify(&spread(2), Known::default()).unwrap();
    assert_eq!(possible.verdict(), Verdict::Nothing);
    let error = verify(&spread(1000), Known::default()).unwrap_err();
    assert!(error.to_string().contains("spread over"), "{error}");

    let vast = Recording {
        segments: vec![run(0, 0, 3 * far)],
        ..Recording::default()
    };
    let error = verify(&vast, Known::default()).unwrap_err();
    assert!(error.to_string().contains("not whole pages"), "{error}");
}

#[test]
fn a_verification_that_is_late_gives_up() {
    let recording = record(PLAIN, 3);
    let late = Known {
        until: Some(Instant::now()),
        ..Known::default()
    };
    let error = verify(&recording, late).unwrap_err();
    assert_eq!(error.to_string(), "time ran out");
    let hours = Duration::from_secs(10 * 3600);
    let in_time = Known {
        until: Instant::now().checked_add(hours),
        ..late
    };
    let found = verify(&recording, in_time);
    assert_eq!(found, verify(&recording, Known::default()));
}
