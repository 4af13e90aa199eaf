//! Impossible recordings cause an error or a reported difference, never a panic.

use std::time::{Duration, Instant};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::Action;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::verify::{Known, Verdict, verify};

use super::invented::{PLAIN, record};

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
