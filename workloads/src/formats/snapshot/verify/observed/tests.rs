use Action::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::release::Release;
use coalesce_alloc::snapshot::{BlockInfo, BlockState};

use super::super::super::Recording;
use super::super::super::calls::tests::entry;
use super::*;

const MIB: u64 = 1 << 20;

/// A segment at the end, of blocks in use and free ones.
fn segment(address: u64, pool: MempoolId, blocks: &[(u64, bool)]) -> SegmentInfo {
    let mut end = DeviceAddr(address);
    let blocks = blocks.iter().map(|&(size, is_used)| {
        let (start, state) = match is_used {
            true => (end, BlockState::ActiveAllocated),
            false => (end, BlockState::Inactive),
        };
        end = start.offset(size);
        BlockInfo::new(start, size, size, state)
    });
    let blocks: Vec<BlockInfo> = blocks.collect();
    SegmentInfo {
        device: 0,
        address: DeviceAddr(address),
        stream: StreamId::DEFAULT,
        kind: PoolKind::Large,
        pool,
        is_expandable: false,
        blocks,
    }
}

/// What is observed: for each segment its first entry and address in MiB, the segments that differ from it, the runs
/// after which it was free, and its return; then the segments of the requests.
fn observed(
    conf: &str,
    entries: &[TraceEntry],
    segments: &[SegmentInfo],
) -> (Vec<String>, Vec<usize>) {
    let recording = Recording {
        conf: Some(conf.to_owned()),
        entries: entries.to_vec(),
        segments: segments.to_vec(),
        ..Recording::default()
    };
    let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
    let observations = Observations::of(&prepared);
    let told = observations.segments.iter().map(|one| {
        let (addr, first) = one.key;
        let mut text = format!("{first}@{}", addr.0 / MIB);
        if !one.differs_from.is_empty() {
            text += &format!(" differs {:?}", one.differs_from);
        }
        if !one.idle_after.is_empty() {
            text += &format!(" idle {:?}", one.idle_after);
        }
        if let Some(pool) = one.known {
            text += &format!(" pool {}", pool.1);
        }
        if let Some(returned) = one.returned {
            text += &format!(" returned {}", returned.run);
        }
        text
    });
    (told.collect(), observations.requests)
}

/// The entries of a request for new memory, which begins a segment.
fn first(addr: u64, segment_size: u64, size: u64) -> [TraceEntry; 2] {
    [
        entry(SegmentAlloc, addr, segment_size),
        entry(Alloc, addr, size),
    ]
}

fn free(addr: u64, size: u64) -> [TraceEntry; 2] {
    [
        entry(FreeRequested, addr, size),
        entry(FreeCompleted, addr, size),
    ]
}

/// Requests of 12, 6 and 6 MiB take segments of 20, 20 and 20 MiB.
#[test]
fn new_memory_where_a_free_block_fits_is_of_another_pool() {
    const A: u64 = 100 * MIB;
    const B: u64 = 200 * MIB;
    let of = |size: u64| {
        let entries = [first(A, 20 * MIB, 12 * MIB - 512), first(B, 20 * MIB, size)].concat();
        let segments = [
            segment(
                A,
                MempoolId::DEFAULT,
                &[(12 * MIB - 512, true), (8 * MIB + 512, false)],
            ),
            segment(
                B,
                MempoolId(0, 3),
                &[(size, true), (20 * MIB - size, false)],
            ),
        ];
        observed("", &entries, &segments).0
    };
    assert_eq!(
        of(8 * MIB + 512),
        ["0@100 differs {1} pool 0", "2@200 differs {0} pool 3"]
    );
    assert_eq!(of(8 * MIB + 1024), ["0@100 pool 0", "2@200 pool 3"]);
}

/// Two segments with free blocks: one of 8 MiB, and one of a given size. A request of 4 MiB is in the first.
#[test]
fn a_worse_fit_is_of_another_pool() {
    const A: u64 = 100 * MIB;
    const B: u64 = 200 * MIB;
    let of = |used: u64, place: u64| {
        let entries = [
            &first(A, 20 * MIB, 12 * MIB)[..],
            &first(B, 20 * MIB, used),
            &[entry(Alloc, place, 4 * MIB)],
        ]
        .concat();
        let rest = |used: u64, taken: bool| match taken {
            true => vec![(used, true), (4 * MIB, true), (16 * MIB - used, false)],
            false => vec![(used, true), (20 * MIB - used, false)],
        };
        let segments = [
            segment(A, MempoolId::DEFAULT, &rest(12 * MIB, place < B)),
            segment(B, MempoolId::DEFAULT, &rest(used, place > B)),
        ];
        let (told, requests) = observed("", &entries, &segments);
        assert_eq!(requests[..2], [0, 1]);
        assert_eq!(requests[2], usize::from(place > B));
        assert_eq!(
            told[0].contains("differs {1}"),
            told[1].contains("differs {0}")
        );
        told[0].contains("differs")
    };
    let in_first = |used| of(used, A + 12 * MIB);
    // Two blocks of 8 MiB: the lower one is right. One of 7 MiB fits better, one of 9 does not.
    assert_eq!([13 * MIB, 11 * MIB].map(in_first), [true, false]);
    let in_second = |used| of(used, B + used);
    assert_eq!([13 * MIB, 11 * MIB].map(in_second), [false, true]);
    // A block of less than the request does not fit.
    assert!(!in_first(17 * MIB));
}

#[test]
fn small_requests_and_other_streams_have_segments_of_their_own() {
    const A: u64 = 100 * MIB;
    const B: u64 = 200 * MIB;
    let mut entries = [first(A, 20 * MIB, 12 * MIB), first(B, 2 * MIB, MIB)].concat();
    let large = segment(A, MempoolId::DEFAULT, &[(12 * MIB, true), (8 * MIB, false)]);
    let mut small = segment(B, MempoolId::DEFAULT, &[(MIB, true), (MIB, false)]);
    small.kind = PoolKind::Small;
    let found = observed("", &entries, &[large.clone(), small]).0;
    assert_eq!(found, ["0@100 pool 0", "2@200 pool 0"]);

    entries[2..].copy_from_slice(&first(B, 20 * MIB, 2 * MIB));
    let mut other = segment(B, MempoolId::DEFAULT, &[(2 * MIB, true), (18 * MIB, false)]);
    let same = observed("", &entries, &[large.clone(), other.clone()]).0;
    assert_eq!(
        same,
        ["0@100 differs {1} pool 0", "2@200 differs {0} pool 0"]
    );
    for entry in &mut entries[2..] {
        entry.stream = StreamId(7);
    }
    other.stream = StreamId(7);
    let found = observed("", &entries, &[large.clone(), other.clone()]).0;
    assert_eq!(found, ["0@100 pool 0", "2@200 pool 0"]);
    // Nothing is known under these settings.
    for conf in ["max_split_size_mb:100", "expandable_segments:True"] {
        let is_expandable = conf.starts_with('e');
        let mut segments = [large.clone(), other.clone()];
        segments[0].is_expandable = is_expandable;
        segments[1].is_expandable = is_expandable;
        let entries = entries.iter().map(|entry| TraceEntry {
            action: match entry.action {
                SegmentAlloc if is_expandable => Action::SegmentMap,
                action => action,
            },
            ..*entry
        });
        let entries: Vec<_> = entries.collect();
        assert_eq!(
            observed(conf, &entries, &segments),
            (vec![], vec![]),
            "{conf}"
        );
    }
}

/// A program that frees its blocks and returns its segments, some in one run.
#[test]
fn segments_are_followed_until_they_are_returned() {
    const A: u64 = 100 * MIB;
    const B: u64 = 200 * MIB;
    const C: u64 = 300 * MIB;
    let entries = [
        &first(A, 20 * MIB, 10 * MIB)[..],
        &[entry(Alloc, A + 10 * MIB, 4 * MIB)],
        &first(B, 30 * MIB, 30 * MIB),
        &first(C, 40 * MIB, 40 * MIB),
        // Both neighbours are joined in either order.
        &free(A, 10 * MIB),
        &free(A + 10 * MIB, 4 * MIB),
        &free(B, 30 * MIB),
        &[entry(SegmentFree, B, 30 * MIB)],
        &[entry(Alloc, A, 10 * MIB)],
        &free(A, 10 * MIB),
        &free(C, 40 * MIB),
        &[
            entry(SegmentFree, A, 20 * MIB),
            entry(SegmentFree, C, 40 * MIB),
        ],
        &first(A, 20 * MIB, 10 * MIB),
    ]
    .concat();
    let end = segment(A, MempoolId(0, 2), &[(10 * MIB, true), (10 * MIB, false)]);
    let (told, requests) = observed("", &entries, &[end]);
    assert_eq!(
        told,
        [
            "0@100 idle {1} returned 2",
            "3@200 returned 1",
            "5@300 returned 2",
            "21@100 pool 2"
        ]
    );
    assert_eq!(requests, [0, 0, 1, 2, 0, 3]);
}

/// The segments at the start are treated as requests in ascending order of address.
#[test]
fn segments_at_the_start_are_known_by_their_address() {
    const A: u64 = 100 * MIB;
    const B: u64 = 200 * MIB;
    let start = [
        segment(
            A,
            MempoolId::DEFAULT,
            &[(10 * MIB, true), (10 * MIB, false)],
        ),
        segment(
            B,
            MempoolId(0, 2),
            &[(4 * MIB, false), (6 * MIB, true), (10 * MIB, false)],
        ),
    ];
    let (told, requests) = observed("", &[], &start);
    assert_eq!(told, ["0@100 pool 0", "0@200 pool 2"]);
    assert_eq!(requests, [0, 1]);
    let mut end = start.to_vec();
    end[0] = segment(
        A,
        MempoolId::DEFAULT,
        &[(10 * MIB, true), (4 * MIB, true), (6 * MIB, false)],
    );
    let request = entry(Alloc, A + 10 * MIB, 4 * MIB);
    let (told, requests) = observed("", &[request], &end);
    // The free block of 4 MiB fits better.
    assert_eq!(
        told,
        ["0@100 differs {1} pool 0", "0@200 differs {0} pool 2"]
    );
    assert_eq!(requests, [0, 1, 0]);
}
