use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;

use super::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 40 * MIB;

fn at(offset: u64) -> DeviceAddr {
    DeviceAddr(BASE + offset)
}

fn settings(conf: &str) -> Settings {
    Settings::from_conf(conf).unwrap()
}

/// A free segment.
fn free(kind: PoolKind, is_expandable: bool, size: u64) -> Segment {
    let info = SegmentInfo {
        device: 0,
        address: at(0),
        stream: StreamId::DEFAULT,
        kind,
        pool: MempoolId::DEFAULT,
        is_expandable,
        blocks: Vec::new(),
    };
    Segment::free(info, size).unwrap()
}

fn large(size: u64) -> Segment {
    free(PoolKind::Large, false, size)
}

/// Bytes, in MiB if they are whole ones, and what is more.
fn short(bytes: u64) -> String {
    match (bytes / MIB, bytes % MIB) {
        (0, rest) => rest.to_string(),
        (whole, 0) => format!("{whole}M"),
        (whole, rest) => format!("{whole}M{rest}"),
    }
}

/// The blocks: their offset, size and requested size; `?` behind guessed sizes, `-` before free blocks, `~` before
/// those that wait.
fn blocks(segment: &Segment) -> String {
    let guessed: Vec<DeviceAddr> = segment.guessed().collect();
    let info = segment.clone().into_info();
    assert_eq!(info.total_size(), segment.size());
    let text = info.blocks.iter().map(|block| {
        let state = match block.state {
            BlockState::Inactive => "-",
            BlockState::ActiveAllocated => "",
            BlockState::ActivePendingFree => "~",
        };
        let mark = match guessed.contains(&block.address) {
            true => "?",
            false => "",
        };
        let offset = short(block.address.offset_from(segment.start()));
        let [size, requested] = [block.size, block.requested_size].map(short);
        format!("{state}{offset}+{size}({requested}){mark}")
    });
    text.collect::<Vec<_>>().join(" ")
}

/// The blocks after these frees are undone: the offsets and the requested bytes.
fn undone(mut segment: Segment, conf: &str, frees: &[(u64, u64)]) -> String {
    for &(offset, requested) in frees {
        let done = segment.undo_free(at(offset), requested, &settings(conf));
        done.unwrap();
    }
    blocks(&segment)
}

#[test]
fn a_large_block_keeps_a_rest_of_up_to_a_mebibyte() {
    let max = "max_split_size_mb:40";
    let of_pages = free(PoolKind::Large, true, 20 * MIB);
    let small = free(PoolKind::Small, false, 2 * MIB);
    for (segment, conf, requested, expected) in [
        (large(20 * MIB), "", 19 * MIB, "~0+20M(19M)"),
        (large(20 * MIB), "", 19 * MIB - 511, "~0+20M(18M1048065)"),
        (
            large(20 * MIB),
            "",
            19 * MIB - 512,
            "~0+18M1048064(18M1048064)? -18M1048064+1M512(0)",
        ),
        (of_pages, "", 19 * MIB, "~0+19M(19M) -19M+1M(0)"),
        (small, "", MIB, "~0+1M(1M) -1M+1M(0)"),
        // An oversize block fills its segment.
        (large(100 * MIB), max, 40 * MIB, "~0+100M(40M)"),
        (
            large(100 * MIB),
            max,
            40 * MIB - 512,
            "~0+39M1048064(39M1048064)? -39M1048064+60M512(0)",
        ),
    ] {
        assert_eq!(undone(segment, conf, &[(0, requested)]), expected);
    }
}

#[test]
fn a_later_block_ends_the_guess_of_the_one_before() {
    // Right behind it, after the longest tail, and after a free block.
    for (offset, expected) in [
        (4 * MIB, "~0+4M(4M) ~4M+2M(2M)? -6M+14M(0)"),
        (5 * MIB, "~0+5M(4M) ~5M+2M(2M)? -7M+13M(0)"),
        (
            5 * MIB + 512,
            "~0+4M(4M)? -4M+1M512(0) ~5M512+2M(2M)? -7M512+12M1048064(0)",
        ),
    ] {
        assert_eq!(
            undone(large(20 * MIB), "", &[(0, 4 * MIB), (offset, 2 * MIB)]),
            expected
        );
    }
    // The sizes of the one before are known.
    let known = [(10 * MIB, 2 * MIB), (0, 9 * MIB), (13 * MIB, 7 * MIB)];
    assert_eq!(
        undone(large(20 * MIB), "", &known),
        "~0+10M(9M) ~10M+3M(2M) ~13M+7M(7M)"
    );
    let known = [(0, 20 * MIB)];
    assert_eq!(undone(large(20 * MIB), "", &known), "~0+20M(20M)");
    // Small blocks have no tails: the bytes between stay free.
    let small = free(PoolKind::Small, false, MIB);
    let expected = "~0+512(512) -512+512(0) ~1024+512(10) -1536+1047040(0)";
    assert_eq!(undone(small, "", &[(0, 512), (1024, 10)]), expected);
}

#[test]
fn an_undone_request_is_joined_with_its_free_neighbours() {
    let frees = [(0, 512), (512, 512), (1024, 512), (1536, 512)];
    let segment = || {
        let mut segment = free(PoolKind::Small, false, 2048);
        for (offset, requested) in frees {
            let done = segment.undo_free(at(offset), requested, &settings(""));
            done.unwrap();
        }
        segment
    };
    let after = |offsets: &[u64]| {
        let mut segment = segment();
        for &offset in offsets {
            segment.undo_alloc(at(offset), 512).unwrap();
        }
        assert_eq!(segment.is_wholly_free(), offsets.len() == 4);
        let pending = segment.count_of(BlockState::ActivePendingFree);
        assert_eq!(pending, 4 - offsets.len());
        blocks(&segment)
    };
    let used = |offset: u64| format!("~{offset}+512(512)");
    let of = |parts: &[&str]| parts.join(" ");
    let [a, b, c, d] = [0, 512, 1024, 1536].map(used);
    assert_eq!(after(&[512]), of(&[&a, "-512+512(0)", &c, &d]));
    assert_eq!(after(&[512, 1024]), of(&[&a, "-512+1024(0)", &d]));
    assert_eq!(after(&[1024, 512]), of(&[&a, "-512+1024(0)", &d]));
    assert_eq!(after(&[0, 1024, 512]), of(&["-0+1536(0)", &d]));
    assert_eq!(
        after(&[1536, 0]),
        of(&["-0+512(0)", &b, &c, "-1536+512(0)"])
    );
    assert_eq!(
        after(&[0, 1, 2, 3].map(|number| number * 512)),
        "-0+2048(0)"
    );

    let mut segment = segment();
    segment.undo_free_request(at(512)).unwrap();
    assert_eq!(blocks(&segment), of(&[&a, "512+512(512)", &c, &d]));
}

#[test]
fn what_cannot_have_happened_is_refused_with_the_reason() {
    let mut segment = large(20 * MIB);
    let none = settings("");
    segment.undo_free(at(2 * MIB), 4 * MIB, &none).unwrap();
    let before = blocks(&segment);
    let reason = |result: Result<(), String>| result.unwrap_err();
    let no_block = "no block in use begins there after it";
    for offset in [0, 512, 6 * MIB, 2 * MIB + 512] {
        assert_eq!(reason(segment.undo_alloc(at(offset), 1)), no_block);
    }
    let too_large = segment.undo_alloc(at(2 * MIB), 4 * MIB + 1);
    assert_eq!(
        reason(too_large),
        "the block after it has only 4194304 bytes"
    );
    let waits = "the free neither completes nor waits for a stream after it";
    for offset in [0, 2 * MIB + 512, 6 * MIB] {
        assert_eq!(reason(segment.undo_free_request(at(offset))), waits);
    }
    let not_free = "its range is not free after it";
    for (offset, bytes) in [
        (MIB, MIB + 1),
        (2 * MIB, 1),
        (3 * MIB, 1),
        (6 * MIB, 14 * MIB + 1),
    ] {
        assert_eq!(
            reason(segment.undo_free(at(offset), bytes, &none)),
            not_free
        );
    }
    let size = "no block can have this size";
    for bytes in [u64::MAX, u64::MAX - (1 << 20)] {
        assert_eq!(reason(segment.undo_free(at(0), bytes, &none)), size);
    }
    assert_eq!(
        reason(segment.undo_free(DeviceAddr(BASE - 512), 1, &none)),
        size
    );
    let in_use = "blocks of the pages are in use before they were mapped";
    for (offset, bytes) in [
        (2 * MIB, MIB),
        (3 * MIB, MIB),
        (MIB, MIB + 512),
        (0, 0),
        (6 * MIB, 14 * MIB + 512),
        (0, u64::MAX),
    ] {
        assert_eq!(
            segment.without(at(offset), bytes).unwrap_err(),
            in_use,
            "{offset}"
        );
    }
    assert_eq!(blocks(&segment), before, "nothing changed");

    let impossible = "no segment can have this size at this address";
    for size in [0, u64::MAX - BASE + 1] {
        let info = segment.info.clone();
        assert_eq!(Segment::free(info, size).unwrap_err(), impossible);
    }
    assert!(Segment::free(segment.info.clone(), u64::MAX - BASE).is_ok());
}

#[test]
fn pages_are_removed_and_joined_again() {
    let run = || {
        let mut run = free(PoolKind::Large, true, 20 * MIB);
        run.undo_free(at(0), 3 * MIB, &settings("")).unwrap();
        run.undo_free(at(12 * MIB), 8 * MIB, &settings("")).unwrap();
        run
    };
    let parts = |offset: u64, bytes: u64| -> Vec<(u64, u64, String)> {
        let parts = run().without(at(offset), bytes).unwrap();
        let told = parts.iter().map(|part| {
            assert_eq!(part.end(), part.start().offset(part.size()));
            (part.start().0 - BASE, part.size(), blocks(part))
        });
        told.collect()
    };
    assert_eq!(
        parts(4 * MIB, 6 * MIB),
        [
            (0, 4 * MIB, "~0+3M(3M) -3M+1M(0)".to_owned()),
            (10 * MIB, 10 * MIB, "-0+2M(0) ~2M+8M(8M)".to_owned()),
        ]
    );
    assert_eq!(
        parts(3 * MIB, 9 * MIB),
        [
            (0, 3 * MIB, "~0+3M(3M)".to_owned()),
            (12 * MIB, 8 * MIB, "~0+8M(8M)".to_owned()),
        ]
    );
    let unused = large(20 * MIB);
    let left = |offset, bytes| unused.without(at(offset), bytes).unwrap().len();
    assert_eq!(
        [
            left(0, 20 * MIB),
            left(0, MIB),
            left(19 * MIB, MIB),
            left(MIB, MIB)
        ],
        [0, 1, 1, 2]
    );

    // Free ends are joined; blocks in use stay apart.
    for (offset, bytes) in [(4 * MIB, 6 * MIB), (3 * MIB, 9 * MIB)] {
        let mut ends = run().without(at(offset), bytes).unwrap();
        let (behind, mut before) = (ends.pop().unwrap(), ends.pop().unwrap());
        let info = SegmentInfo {
            address: at(offset),
            ..before.info.clone()
        };
        let mut pages = Segment::free(info, bytes).unwrap();
        pages.append(behind);
        before.append(pages);
        assert_eq!(blocks(&before), "~0+3M(3M) -3M+9M(0) ~12M+8M(8M)");
    }
}
