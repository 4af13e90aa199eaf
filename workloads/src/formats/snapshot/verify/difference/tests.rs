use Action::{Alloc, FreeCompleted, Oom, SegmentAlloc, SegmentMap};
use BlockState::{ActiveAllocated, ActivePendingFree, Inactive};
use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::snapshot::BlockInfo;
use coalesce_alloc::stats::PoolKind;

use super::super::super::calls::tests::entry;
use super::*;

const KIB: u64 = 1 << 10;
const SMALL: PoolKind = PoolKind::Small;

/// A segment of blocks: their sizes in KiB and their states.
fn segment(kind: PoolKind, address: u64, blocks: &[(u64, BlockState)]) -> SegmentInfo {
    let mut end = DeviceAddr(address);
    let blocks = blocks.iter().map(|&(size, state)| {
        let start = end;
        end = start.offset(size * KIB);
        BlockInfo::new(start, size * KIB, size * KIB, state)
    });
    let blocks = blocks.collect();
    SegmentInfo {
        device: 0,
        address: DeviceAddr(address),
        stream: StreamId::DEFAULT,
        kind,
        pool: MempoolId::DEFAULT,
        is_expandable: false,
        blocks,
    }
}

fn deviation(ours: &[TraceEntry], error: Option<Error>) -> Deviation {
    Deviation {
        ours: ours.to_vec(),
        error,
        ranges: std::collections::BTreeMap::new(),
    }
}

#[test]
fn the_reason_is_what_differs_first() {
    let segments = [segment(
        SMALL,
        0x4000,
        &[(4, Inactive), (4, ActiveAllocated), (4, ActivePendingFree)],
    )];
    let reason = |kind, recorded: &[TraceEntry], ours: &[TraceEntry]| {
        let call = Call::new(kind, 0..recorded.len());
        reason(&call, recorded, &deviation(ours, None), &segments)
    };
    use CallKind::{FailedMalloc, Free, Malloc};
    let at = |addr| entry(Alloc, addr, 512);
    let taken = [entry(SegmentMap, 0x9000, 0x200), at(0x9000)];
    let other = "other segments are taken or returned, or other frees complete";
    for (kind, recorded, ours, expected) in [
        (
            Malloc,
            &[at(0x4000)][..],
            &[at(0x5000)][..],
            "512 bytes are at 0x5000 instead of 0x4000, which is in a block of 4096 bytes at 0x4000, free",
        ),
        (
            Malloc,
            &[at(0x5fff)],
            &[at(0x4000)],
            "512 bytes are at 0x4000 instead of 0x5fff, which is in a block of 4096 bytes at 0x5000, in use",
        ),
        (
            Malloc,
            &[at(0x6000)],
            &[at(0x4000)],
            "512 bytes are at 0x4000 instead of 0x6000, which is in a block of 4096 bytes at 0x6000, waiting for a stream",
        ),
        (
            Malloc,
            &[at(0x7000)],
            &[at(0x4000)],
            "512 bytes are at 0x4000 instead of 0x7000, which is not in memory of this process",
        ),
        (
            Malloc,
            &taken,
            &[at(0x4000)],
            "512 bytes are at 0x4000 instead of 0x9000, which is in memory that the same call took from the device",
        ),
        (
            Malloc,
            &[taken[0], at(0x9200)],
            &[],
            "no memory for 512 bytes, recorded at 0x9200, which is not in memory of this process",
        ),
        (
            Malloc,
            &[entry(FreeCompleted, 0x8f00, 0x200), at(0x8fff)],
            &[entry(Oom, 7, 512)],
            "no memory for 512 bytes, recorded at 0x8fff, which is not in memory of this process",
        ),
        (Malloc, &taken, &[at(0x9000)], other),
        (
            FailedMalloc,
            &[entry(Oom, 7, 512)],
            &[at(0x4000)],
            "a request succeeds that failed when recorded",
        ),
        (FailedMalloc, &[entry(Oom, 7, 512)], &[], other),
        (
            Free,
            &[entry(FreeCompleted, 0x5000, 512)],
            &[at(0x4000)],
            other,
        ),
        (Malloc, &[], &[], other),
    ] {
        assert_eq!(reason(kind, recorded, ours), expected);
    }
    let failed = deviation(&[at(1)], Some(Error::Pool(PoolError::NoCapture)));
    let text = super::reason(&Call::new(Malloc, 0..1), &[at(1)], &failed, &segments);
    assert_eq!(
        text,
        format!(
            "the allocator failed: {}",
            Error::Pool(PoolError::NoCapture)
        )
    );
}

/// The sizes in KiB of the candidates; `r` behind one that was taken in the recording, `o` in the replay.
fn shown(recorded: &[TraceEntry], ours: &[TraceEntry], segments: &[SegmentInfo]) -> String {
    let found = candidates(recorded, ours, segments, |bytes| {
        bytes.next_multiple_of(KIB)
    });
    let told = found.iter().map(|block| {
        let mut text = (block.size / KIB).to_string();
        text.extend(block.is_recorded.then_some('r'));
        text.extend(block.is_ours.then_some('o'));
        text
    });
    told.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_free_blocks_around_the_size_are_shown() {
    let sizes = [9, 1, 8, 2, 7, 3, 6, 4, 5, 10];
    let blocks: Vec<_> = sizes
        .iter()
        .flat_map(|&size| [(size, Inactive), (1, ActiveAllocated)])
        .collect();
    let of = |kind| segment(kind, 0x10_0000, &blocks);
    let segments = [of(SMALL)];
    let alloc = |size: u64| [entry(Alloc, 1, size)];
    assert_eq!(shown(&alloc(4 * KIB), &[], &segments), "2 3 4 5 6 7");
    assert_eq!(shown(&alloc(4 * KIB + 1), &[], &segments), "3 4 5 6 7 8");
    assert_eq!(shown(&alloc(1), &[], &segments), "1 2 3 4");
    assert_eq!(shown(&alloc(11 * KIB), &[], &segments), "9 10");
    // A failed request has candidates, other entries have none.
    assert_eq!(
        shown(&[entry(Oom, 1, 4 * KIB)], &[], &segments),
        "2 3 4 5 6 7"
    );
    assert_eq!(
        shown(&[entry(FreeCompleted, 1, 4 * KIB)], &[], &segments),
        ""
    );
    assert_eq!(shown(&[], &alloc(1), &segments), "");
    // Whatever was taken is shown, also in the middle of a block.
    let first = 0x10_0000;
    let middle = [entry(Alloc, first + 9 * KIB - 1, 4 * KIB)];
    assert_eq!(shown(&middle, &[], &segments), "2 3 4 5 6 7 9r");
    let second = first + 10 * KIB;
    let ours = [entry(SegmentAlloc, 5, 5), entry(Alloc, second, 4 * KIB)];
    assert_eq!(shown(&middle, &ours, &segments), "1o 2 3 4 5 6 7 9r");
    assert_eq!(shown(&ours, &ours, &segments), "1ro 2 3 4 5 6 7");
    // Behind its end is the next block; and what did not allocate took nothing.
    let behind = [entry(Alloc, first + 9 * KIB, 4 * KIB)];
    assert_eq!(shown(&behind, &[], &segments), "2 3 4 5 6 7");
    assert_eq!(
        shown(&alloc(4 * KIB), &[entry(Oom, second, 1)], &segments),
        "2 3 4 5 6 7"
    );
    // Segments of other streams and kinds.
    let mut others = [of(PoolKind::Large), of(SMALL)];
    others[1].stream = StreamId(7);
    assert_eq!(shown(&alloc(4 * KIB), &[], &others), "");
    assert_eq!(shown(&alloc(2 << 20), &[], &others), "9 10");
}

#[test]
fn a_difference_is_shown_with_what_is_around_it() {
    let taken = |is_recorded, is_ours| Candidate {
        addr: DeviceAddr(0x4000),
        size: 512,
        is_recorded,
        is_ours,
    };
    let one = entry(Alloc, 0x4000, 512);
    let mut other = entry(SegmentAlloc, 0x6000, 2048);
    other.stream = StreamId(0x70);
    let difference = Difference {
        entry: Some(3),
        reason: "it differs".to_owned(),
        before: vec![one, other],
        recorded: vec![one],
        ours: Vec::new(),
        after: vec![other],
        candidates: vec![
            taken(false, false),
            taken(true, false),
            taken(false, true),
            taken(true, true),
        ],
    };
    assert_eq!(
        difference.to_string(),
        "entry 3: it differs
  before    alloc          0x4000  512 bytes, stream 0x0
            segment_alloc  0x6000  2048 bytes, stream 0x70
  recorded  alloc          0x4000  512 bytes, stream 0x0
  after     segment_alloc  0x6000  2048 bytes, stream 0x70
  free                  512 bytes at 0x4000
                        512 bytes at 0x4000  taken in the recording
                        512 bytes at 0x4000  taken in the replay
                        512 bytes at 0x4000  taken by both
"
    );
    let at_end = Difference {
        entry: None,
        ..difference
    };
    assert_eq!(at_end.summary(), "at the end: it differs");
}

#[test]
fn states_at_the_end_are_compared_block_by_block() {
    let two = [(4, ActiveAllocated), (2, Inactive)];
    let recording = |segments: Vec<SegmentInfo>| Recording {
        entries: (0..6).map(|addr| entry(Alloc, addr, 1)).collect(),
        segments,
        ..Recording::default()
    };
    let of = |blocks: &[(u64, BlockState)]| vec![segment(SMALL, 0x4000, blocks)];
    let found = |ours: Vec<SegmentInfo>, recorded: Vec<SegmentInfo>| {
        Difference::at_end(&recording(recorded), &ours)
    };
    let reason = |ours, recorded| found(ours, recorded).map(|difference| difference.reason);
    assert_eq!(reason(of(&two), of(&two)), None);
    for (ours, recorded, expected) in [
        (
            of(&[(4, ActiveAllocated), (2, ActivePendingFree)]),
            of(&two),
            "the replay ends with a block of 2048 bytes at 0x5000, waiting for a stream instead of 2048 bytes at 0x5000, \
             free",
        ),
        (
            of(&two),
            of(&two[..1]),
            "the replay ends with another block: 2048 bytes at 0x5000, free",
        ),
        (
            of(&two[..1]),
            of(&two),
            "the replay ends without a recorded block: 2048 bytes at 0x5000, free",
        ),
    ] {
        assert_eq!(reason(ours, recorded).as_deref(), Some(expected));
    }
    // The order of segments does not matter.
    let [low, high] = [0x1000, 0x9000].map(|address| segment(SMALL, address, &two));
    assert_eq!(
        reason(vec![high.clone(), low.clone()], vec![low, high]),
        None
    );
    let difference = found(of(&two), Vec::new()).unwrap();
    let before: Vec<u64> = difference.before.iter().map(|entry| entry.addr.0).collect();
    assert_eq!(before, [2, 3, 4, 5]);
    assert!(difference.entry.is_none() && difference.after.is_empty());
}
