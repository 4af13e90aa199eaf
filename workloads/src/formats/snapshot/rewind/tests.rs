use Action::{
    Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap,
};
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::release::Release;
use coalesce_alloc::snapshot::BlockInfo;

use super::super::calls::tests::entry;
use super::*;

const MIB: u64 = 1 << 20;
const EXPANDABLE: &str = "expandable_segments:True";

/// Entries about addresses and sizes in MiB; a size of 0 is one of 512 bytes.
fn entries(steps: &[(Action, u64, u64)]) -> Vec<TraceEntry> {
    let entry = |&(action, addr, size): &(Action, u64, u64)| match size {
        0 => entry(action, addr * MIB, 512),
        size => entry(action, addr * MIB, size * MIB),
    };
    steps.iter().map(entry).collect()
}

/// A segment of the default pool: its address and its blocks in MiB, and whether these are in use.
fn segment(kind: PoolKind, addr: u64, blocks: &[(u64, bool)]) -> SegmentInfo {
    let mut end = DeviceAddr(addr * MIB);
    let blocks = blocks.iter().map(|&(size, is_used)| {
        let (start, size) = (end, size * MIB);
        end = start.offset(size);
        match is_used {
            true => BlockInfo::new(start, size, size, BlockState::ActiveAllocated),
            false => BlockInfo::new(start, size, 0, BlockState::Inactive),
        }
    });
    let blocks = blocks.collect();
    SegmentInfo {
        device: 0,
        address: DeviceAddr(addr * MIB),
        stream: StreamId::DEFAULT,
        kind,
        pool: MempoolId::DEFAULT,
        is_expandable: false,
        blocks,
    }
}

fn large(addr: u64, blocks: &[(u64, bool)]) -> SegmentInfo {
    segment(PoolKind::Large, addr, blocks)
}

/// Pages that were mapped together.
fn run(kind: PoolKind, addr: u64, blocks: &[(u64, bool)]) -> SegmentInfo {
    SegmentInfo {
        is_expandable: true,
        ..segment(kind, addr, blocks)
    }
}

fn recording(conf: &str, steps: &[(Action, u64, u64)], segments: &[SegmentInfo]) -> Recording {
    Recording {
        conf: Some(conf.to_owned()),
        entries: entries(steps),
        segments: segments.to_vec(),
        ..Recording::default()
    }
}

fn rewound(recording: &Recording) -> Result<Start, String> {
    let known = recording.settings_in(Release::DEFAULT).unwrap();
    rewind(recording, &known).map_err(|error| error.to_string())
}

fn start(conf: &str, steps: &[(Action, u64, u64)], segments: &[SegmentInfo]) -> Start {
    rewound(&recording(conf, steps, segments)).unwrap()
}

fn error(conf: &str, steps: &[(Action, u64, u64)], segments: &[SegmentInfo]) -> String {
    rewound(&recording(conf, steps, segments)).unwrap_err()
}

#[test]
fn what_was_taken_is_gone_and_what_was_returned_is_back() {
    let end = [large(100, &[(5, true), (15, false)])];
    let steps = [
        (SegmentFree, 200, 30),
        (SegmentFree, 300, 2),
        (SegmentAlloc, 100, 20),
        (Alloc, 100, 5),
        (Oom, 0, 7),
        (Action::Snapshot, 0, 7),
    ];
    let found = start("", &steps, &end);
    assert!(found.is_warm() && found.guessed.is_empty() && found.remarks.is_empty());
    let small = segment(PoolKind::Small, 300, &[(2, false)]);
    assert_eq!(found.segments, [large(200, &[(30, false)]), small]);
    assert_eq!(start("", &steps[2..], &end), Start::default());
    assert!(!start("", &steps[2..], &end).is_warm());
}

#[test]
fn contradictions_are_told() {
    let end = [large(100, &[(5, true), (15, false)])];
    let steps = |before: (Action, u64, u64)| [before, (SegmentFree, 200, 30), (Alloc, 100, 5)];
    let told = |before| error("", &steps(before), &end);
    for (before, expected) in [
        (
            (SegmentAlloc, 100, 19),
            "the segment after it has 20971520 bytes at 0x6400000",
        ),
        (
            (SegmentAlloc, 101, 19),
            "the segment after it has 20971520 bytes at 0x6400000",
        ),
        ((SegmentAlloc, 120, 20), "no segment is there after it"),
        ((SegmentAlloc, 99, 20), "no segment is there after it"),
        (
            (SegmentFree, 81, 20),
            "the segment at 0x6400000 overlaps it",
        ),
        (
            (SegmentFree, 119, 20),
            "the segment at 0x6400000 overlaps it",
        ),
        (
            (SegmentFree, 229, 20),
            "the segment at 0xc800000 overlaps it",
        ),
        (
            (SegmentMap, 200, 2),
            "the segment after it is not expandable",
        ),
    ] {
        let expected = format!("is impossible: {expected}");
        assert!(
            told(before).ends_with(&expected),
            "{before:?}: {}",
            told(before)
        );
    }
    // Beside them is room.
    for before in [
        (SegmentFree, 80, 20),
        (SegmentFree, 120, 20),
        (SegmentFree, 230, 20),
    ] {
        assert_eq!(start("", &steps(before), &end).segments.len(), 3);
    }
    let found = error("", &[(SegmentAlloc, 100, 20)], &end);
    let expected = "entry 0 (segment_alloc of 20971520 bytes at 0x6400000) is impossible: \
                    blocks of the segment are in use before it was taken";
    assert_eq!(found, expected);
    let pages = [run(PoolKind::Large, 100, &[(20, false)])];
    assert!(error(EXPANDABLE, &[(SegmentAlloc, 100, 20)], &pages).contains("the segment after it"));
    let skipped = [(SegmentAlloc, 100, 20), (SegmentAlloc, 100, 20)];
    let expected = "the recording leaves out all entries segment_free (skip_actions of _record_memory_history), so it \
                    cannot be replayed; record without skip_actions";
    assert_eq!(error("", &skipped, &[large(100, &[(20, false)])]), expected);
}

#[test]
fn unknown_properties_of_the_start_are_told() {
    let blocks = [(4, false), (5, true), (11, false)];
    let frees = [
        (FreeRequested, 100, 4),
        (FreeCompleted, 100, 4),
        (FreeCompleted, 109, 5),
    ];
    let end = [large(100, &blocks)];
    let known = recording("", &frees, &end);
    let remarks = |recording: &Recording| rewound(recording).unwrap().remarks;
    let sizes = "the exact sizes of 1 blocks in use before the first entry are unknown; they may be up to 1 MiB larger";
    let waits = "blocks freed before the first entry that wait for a stream: 1";
    assert_eq!(remarks(&known), [sizes, waits]);
    assert_eq!(rewound(&known).unwrap().guessed, [DeviceAddr(109 * MIB)]);
    let unrecorded = Recording {
        conf: None,
        ..known.clone()
    };
    let defaults = "the settings are not recorded; taken to be the defaults";
    assert_eq!(remarks(&unrecorded), [defaults, sizes, waits]);
    let collected = Recording {
        conf: Some("garbage_collection_threshold:0.5,later\u{7}:1".to_owned()),
        ..known.clone()
    };
    let unknown = "PyTorch 2.15 does not know the setting 'later\\u{7}', which is not simulated";
    let ages = "the ages of free blocks at the first entry, which the garbage collector uses, are not recorded";
    assert_eq!(remarks(&collected), [unknown, ages, sizes, waits]);
    let pages = Recording {
        conf: None,
        ..recording("", &[], &[run(PoolKind::Large, 100, &[(20, true)])])
    };
    let expandable = "the settings are not recorded; taken to be expandable_segments:True, because it has expandable \
                      segments";
    assert_eq!(remarks(&pages), [expandable]);

    // Pools that are not recorded matter if anything was returned.
    let pool = MempoolId(0, 1);
    let private = SegmentInfo {
        pool,
        ..large(100, &[(20, true)])
    };
    let steps = [(SegmentFree, 200, 20)];
    let returned = recording("", &steps, &[private]);
    let pools = "the pools of returned segments are not recorded; taken to be the default pool unless trials show \
                 otherwise";
    assert_eq!(remarks(&returned), [pools]);
    let told = Recording {
        entry_pools: vec![pool],
        ..returned.clone()
    };
    assert_eq!(remarks(&told), [""; 0]);
    assert_eq!(rewound(&told).unwrap().segments[1].pool, pool);
    assert_eq!(
        rewound(&returned).unwrap().segments[1].pool,
        MempoolId::DEFAULT
    );
    let kept = Recording {
        entries: Vec::new(),
        ..returned
    };
    assert_eq!(remarks(&kept), [""; 0]);
    assert_eq!(
        remarks(&recording("", &steps, &[large(100, &[(20, true)])])),
        [""; 0]
    );
}

/// The runs at the start, after these pages were unmapped.
fn runs(steps: &[(Action, u64, u64)], segments: &[SegmentInfo]) -> Vec<(u64, u64, PoolKind)> {
    let start = start(EXPANDABLE, steps, segments);
    let runs = start.segments.iter();
    runs.map(|run| (run.address.0 / MIB, run.total_size() / MIB, run.kind))
        .collect()
}

#[test]
fn unmapped_pages_are_joined_with_the_runs_beside_them() {
    use PoolKind::{Large, Small};

    let before = run(Large, 80, &[(20, true)]);
    let behind = run(Large, 120, &[(20, true)]);
    let both = [before.clone(), behind.clone()];
    let unmapped = [(SegmentUnmap, 100, 20)];
    assert_eq!(runs(&unmapped, &both), [(80, 60, Large)]);
    assert_eq!(runs(&unmapped, &both[..1]), [(80, 40, Large)]);
    assert_eq!(runs(&unmapped, &both[1..]), [(100, 40, Large)]);
    assert_eq!(runs(&unmapped, &[]), [(100, 20, Large)]);
    // Alone, the size tells the kind.
    assert_eq!(runs(&[(SegmentUnmap, 100, 18)], &[]), [(100, 18, Small)]);
    // Beside pages, it does not matter.
    assert_eq!(
        runs(&[(SegmentUnmap, 100, 18)], &both[..1]),
        [(80, 38, Large)]
    );
    let [other, third] = [80, 120].map(|addr| run(Small, addr, &[(20, true)]));
    // A block that was in the pages tells it as well.
    let used = [(FreeCompleted, 100, 0), (SegmentUnmap, 100, 20)];
    assert_eq!(runs(&used, &[]), [(100, 20, Small)]);
    assert_eq!(
        runs(&used, &both),
        [(80, 20, Large), (100, 20, Small), (120, 20, Large)]
    );
    assert_eq!(
        runs(&used, &[before.clone(), third.clone()]),
        [(80, 20, Large), (100, 40, Small)]
    );
    assert_eq!(
        runs(&used, &[other.clone(), behind]),
        [(80, 40, Small), (120, 20, Large)]
    );
    // The run before comes first.
    assert_eq!(
        runs(&unmapped, &[other, both[1].clone()]),
        [(80, 40, Small), (120, 20, Large)]
    );
    // Neither another stream nor a segment that is not expandable is joined, nor one further away.
    let stream = SegmentInfo {
        stream: StreamId(8),
        ..before.clone()
    };
    assert_eq!(
        runs(&unmapped, &[stream]),
        [(80, 20, Large), (100, 20, Large)]
    );
    let plain = large(80, &[(20, true)]);
    assert_eq!(
        runs(&unmapped, &[plain]),
        [(80, 20, Large), (100, 20, Large)]
    );
    let far = [
        run(Large, 60, &[(20, true)]),
        run(Large, 140, &[(20, true)]),
    ];
    assert_eq!(
        runs(&unmapped, &far),
        [(60, 20, Large), (100, 20, Large), (140, 20, Large)]
    );
    // The pool of the run before is that of the pages.
    let private = SegmentInfo {
        pool: MempoolId(0, 1),
        ..before
    };
    let found = start(EXPANDABLE, &unmapped, &[private, both[1].clone()]);
    let pools = found
        .segments
        .iter()
        .map(|run| (run.total_size() / MIB, run.pool.1));
    assert_eq!(pools.collect::<Vec<_>>(), [(40, 1), (20, 0)]);
}

#[test]
fn mapped_pages_are_cut_out_of_their_run() {
    use PoolKind::Large;

    let whole = [run(Large, 80, &[(20, true), (20, false), (20, true)])];
    let found = runs(&[(SegmentMap, 100, 20)], &whole);
    assert_eq!(found, [(80, 20, Large), (120, 20, Large)]);
    let steps = [(SegmentMap, 80, 60), (Alloc, 80, 20), (Alloc, 120, 20)];
    assert_eq!(start(EXPANDABLE, &steps, &whole), Start::default());
    let used = error(EXPANDABLE, &[(SegmentMap, 80, 20)], &whole);
    assert!(
        used.contains("blocks of the pages are in use before they were mapped"),
        "{used}"
    );
    let beyond = (SegmentUnmap, u64::MAX / MIB, 20);
    let beyond = error(EXPANDABLE, &[beyond], &whole);
    assert!(
        beyond.contains("its end exceeds the address space"),
        "{beyond}"
    );
}

/// The pages of a block of 30 MiB are unmapped one by one, and a segment of small blocks takes their addresses.
#[test]
fn pages_keep_their_kind_when_another_segment_takes_their_addresses() {
    let steps = [
        (SegmentMap, 100, 40),
        (Alloc, 100, 30),
        (Alloc, 130, 5),
        (FreeRequested, 100, 30),
        (FreeCompleted, 100, 30),
        (SegmentUnmap, 100, 20),
        (FreeRequested, 130, 5),
        (FreeCompleted, 130, 5),
        (SegmentUnmap, 120, 20),
        (SegmentMap, 100, 2),
        (Alloc, 100, 1),
    ];
    let end = run(PoolKind::Small, 100, &[(1, true), (1, false)]);
    assert_eq!(start(EXPANDABLE, &steps, &[end]), Start::default());
}
