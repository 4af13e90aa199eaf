use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree};
use coalesce_alloc::driver::StreamId;
use coalesce_alloc::release::Release;
use coalesce_alloc::snapshot::{BlockInfo, BlockState};
use coalesce_alloc::stats::PoolKind;

use super::*;
use crate::op::Answer;

mod steps;

const MIB: u64 = 1 << 20;

/// The entry about a block, which is a segment of 20 MiB.
fn entry((action, block): (Action, u64)) -> TraceEntry {
    TraceEntry {
        action,
        addr: DeviceAddr(block * 20 * MIB),
        size: 20 * MIB,
        stream: StreamId::DEFAULT,
        time_us: 0,
    }
}

/// A program that returned all its memory at the end. Each block of 20 MiB is a segment. The entries are
/// given by their action and the number of their block.
fn program(entries: &[(Action, u64)]) -> RecordedWorkload {
    let recording = Recording {
        entries: entries.iter().copied().map(entry).collect(),
        ..Recording::default()
    };
    RecordedWorkload::new("test", &recording).unwrap()
}

/// The operations, abbreviated, if the requests with these ids fail.
fn operations(program: &RecordedWorkload, fail: &[u64]) -> Vec<String> {
    let mut ops = Vec::new();
    let mut sink = |op: Op<'_>| {
        let (text, answer) = match op {
            Op::Malloc { id, .. } if fail.contains(&id) => {
                (format!("{id} fails"), Answer::OutOfMemory)
            }
            Op::Malloc { id, .. } => (format!("malloc {id}"), Answer::Done),
            Op::Free { id } => (format!("free {id}"), Answer::Done),
            Op::RecordStream { id, stream } => (format!("{id} on {stream}"), Answer::Done),
            Op::Surroundings(change) => (format!("{change:?}"), Answer::Done),
            Op::Limit { bytes } => (format!("limit {bytes:?}"), Answer::Done),
            Op::Pool(call) => (format!("{call:?}"), Answer::Done),
            Op::EmptyCache => ("empty".to_owned(), Answer::Done),
            Op::Mark { tag } => (tag.to_owned(), Answer::Done),
        };
        ops.push(text);
        Ok(answer)
    };
    program.emit(&mut sink).unwrap();
    ops
}

/// Two requests, a failure and another request, with their frees and segments.
const SURVIVES: [(Action, u64); 13] = [
    (SegmentAlloc, 1),
    (Alloc, 1),
    (SegmentAlloc, 2),
    (Alloc, 2),
    (Oom, 0),
    (FreeRequested, 2),
    (FreeCompleted, 2),
    (Alloc, 2),
    (FreeRequested, 2),
    (FreeCompleted, 2),
    (FreeRequested, 1),
    (FreeCompleted, 1),
    (SegmentFree, 1),
];

fn survives() -> RecordedWorkload {
    program(&[&SURVIVES[..], &[(SegmentFree, 2)]].concat())
}

#[test]
fn a_failed_request_fails_again_or_is_freed_at_once() {
    let rest = ["free 1", "malloc 3", "free 3", "free 0", "empty"];
    let again = ["malloc 0", "malloc 1", "2 fails"];
    assert_eq!(operations(&survives(), &[2]), [&again[..], &rest].concat());
    let fits = ["malloc 0", "malloc 1", "malloc 2", "free 2"];
    assert_eq!(operations(&survives(), &[]), [&fits[..], &rest].concat());
}

#[test]
fn a_program_that_handles_failures_resumes_after_the_next_one() {
    let expected = ["0 fails", "free 1", "malloc 3", "free 3", "free 0", "empty"];
    assert_eq!(
        operations(&survives(), &[0]),
        expected,
        "1 and 2 are skipped"
    );
}

#[test]
fn a_program_ends_at_a_failure_without_a_later_recorded_one() {
    let expected = ["malloc 0", "malloc 1", "2 fails", "free 1", "3 fails"];
    assert_eq!(operations(&survives(), &[2, 3]), expected);
}

#[test]
fn a_pending_free_completes_where_it_was_recorded() {
    let program = program(&[
        (SegmentAlloc, 1),
        (Alloc, 1),
        (FreeRequested, 1),
        (SegmentAlloc, 2),
        (Alloc, 2),
        (FreeCompleted, 1),
        (Alloc, 1),
        (FreeRequested, 1),
        (FreeCompleted, 1),
        (FreeRequested, 2),
        (FreeCompleted, 2),
        (SegmentFree, 1),
        (SegmentFree, 2),
    ]);
    let expected = [
        "malloc 0",
        "0 on 1",
        "HoldEvents(true)",
        "free 0",
        "HoldEvents(false)",
        "malloc 1",
        "FinishEvents { stream: 1, count: 1 }",
        "malloc 2",
        "free 2",
        "free 1",
        "empty",
    ];
    assert_eq!(operations(&program, &[]), expected);
}

#[test]
fn a_free_that_a_malloc_waited_for_completes_later() {
    let program = program(&[
        (SegmentAlloc, 1),
        (Alloc, 1),
        (SegmentAlloc, 2),
        (Alloc, 2),
        (FreeRequested, 1),
        (FreeRequested, 2),
        (FreeCompleted, 2),
        (Alloc, 2),
        // A malloc out of memory waits and returns cached segments.
        (FreeCompleted, 1),
        (SegmentFree, 1),
        (SegmentAlloc, 3),
        (Alloc, 3),
        (FreeRequested, 3),
        (FreeRequested, 2),
        (FreeCompleted, 2),
        // A malloc that only polls events.
        (FreeCompleted, 3),
        (Alloc, 2),
        (FreeRequested, 2),
        (FreeCompleted, 2),
        (SegmentFree, 2),
        (SegmentFree, 3),
    ]);
    let over = |stream| format!("FinishEvents {{ stream: {stream}, count: 1 }}");
    let ops = operations(&program, &[]);
    let from = ops.iter().position(|line| line.starts_with("Finish"));
    let from = from.map(|at| &ops[at..at + 3]);
    assert_eq!(
        from,
        Some(&[over(1), over(2), "malloc 4".into()][..]),
        "{ops:?}"
    );
}

/// A program with a pool of CUDA graphs, as PyTorch 2.11 records it: the default pool has the segments 1 and 2, the
/// pool (0, 7) the segments 5 and 6. Segment 2 is returned by `empty_cache`.
#[test]
fn requests_are_directed_to_the_pools_of_their_segments() {
    use coalesce_alloc::snapshot::{BlockInfo, BlockState};
    use coalesce_alloc::stats::PoolKind;

    let entries = [
        (SegmentAlloc, 1),
        (Alloc, 1),
        (SegmentAlloc, 5),
        (Alloc, 5),
        (FreeRequested, 5),
        (FreeCompleted, 5),
        (SegmentAlloc, 2),
        (Alloc, 2),
        (FreeRequested, 2),
        (FreeCompleted, 2),
        (SegmentFree, 2),
        (Alloc, 5),
        (SegmentAlloc, 6),
        (Alloc, 6),
        (Oom, 0),
    ];
    let pool = MempoolId(0, 7);
    let segment = |number: u64, pool: MempoolId| {
        let address = DeviceAddr(number * 20 * MIB);
        let (size, state) = (20 * MIB, BlockState::ActiveAllocated);
        SegmentInfo {
            device: 0,
            address,
            stream: StreamId::DEFAULT,
            kind: PoolKind::Large,
            pool,
            is_expandable: false,
            blocks: vec![BlockInfo::new(address, size, size, state)],
        }
    };
    let recording = Recording {
        entries: entries.map(entry).to_vec(),
        segments: vec![
            segment(1, MempoolId::DEFAULT),
            segment(5, pool),
            segment(6, pool),
        ],
        ..Recording::default()
    };
    let program = RecordedWorkload::new("pools", &recording).unwrap();
    let begin = "Begin(MempoolId(0, 7))";
    let end = "End(MempoolId(0, 7))";
    let expected = [
        "malloc 0",
        begin,
        "malloc 1",
        end,
        "free 1",
        "malloc 2",
        "free 2",
        "empty",
        "BeginCapture",
        begin,
        "malloc 3",
        "malloc 4",
        "5 fails",
        end,
        "EndCapture",
    ];
    assert_eq!(operations(&program, &[5]), expected);
}

#[test]
fn the_mark_of_a_failed_request_is_in_front_of_its_origin() {
    for (tag, origin) in [
        (
            "failed when recorded: addmm (train.py:24)",
            "addmm (train.py:24)",
        ),
        ("failed when recorded: ", ""),
        ("failed when recorded", ""),
        ("addmm: x", "addmm: x"),
        ("", ""),
    ] {
        assert_eq!(without_mark(tag), origin, "{tag}");
    }
}

/// Blocks in use before the first entry are requested first, those of private pools from these. The stack is that of
/// blocks that live to the end.
#[test]
fn blocks_before_the_first_entry_are_requested_by_address() {
    use coalesce_alloc::snapshot::{BlockInfo, BlockState};

    use super::super::{Frame, Stack};

    let block = |number: u64, requested, state| {
        BlockInfo::new(DeviceAddr(number * MIB), 4 * MIB, requested, state)
    };
    let (used, free) = (BlockState::ActiveAllocated, BlockState::Inactive);
    let segment = |number: u64, stream, pool, blocks: Vec<BlockInfo>| SegmentInfo {
        device: 0,
        address: DeviceAddr(number * MIB),
        stream: StreamId(stream),
        kind: coalesce_alloc::stats::PoolKind::Large,
        pool,
        is_expandable: false,
        blocks,
    };
    let stack = Stack {
        frames: vec![Arc::new(Frame {
            name: "forward".to_owned(),
            filename: "train.py".to_owned(),
            line: 24,
        })],
    };
    let recording = Recording {
        entries: vec![TraceEntry {
            action: FreeRequested,
            addr: DeviceAddr(108 * MIB),
            size: 3 * MIB,
            stream: StreamId(9),
            time_us: 0,
        }],
        segments: vec![
            segment(
                100,
                9,
                MempoolId::DEFAULT,
                vec![
                    block(100, 3 * MIB, used),
                    block(104, 0, free),
                    block(108, 3 * MIB, BlockState::ActivePendingFree),
                ],
            ),
            segment(200, 5, MempoolId(0, 3), vec![block(200, 0, used)]),
        ],
        stacks: vec![Stack::default(), stack],
        block_stacks: [100, 108, 200]
            .map(|number| (DeviceAddr(number * MIB), StackId(1)))
            .into_iter()
            .collect(),
        ..Recording::default()
    };
    let program = RecordedWorkload::new("warm", &recording).unwrap();
    let mut operations = Vec::new();
    let mut note = |op: Op<'_>| {
        operations.push(match op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => format!("{id}: {} MiB on {stream}, {tag}", bytes / MIB),
            Op::Pool(call) => format!("{call:?}"),
            Op::RecordStream { id, stream } => format!("{id} on {stream}"),
            Op::Free { id } => format!("free {id}"),
            _ => return Ok(Answer::Done),
        });
        Ok(Answer::Done)
    };
    program.emit(&mut note).unwrap();
    let origin = "forward (train.py:24)";
    let expected = [
        format!("0: 3 MiB on 2, {origin}"),
        "1: 3 MiB on 2, ".to_owned(),
        "Begin(MempoolId(0, 3))".to_owned(),
        format!("2: 4 MiB on 1, {origin}"),
        "End(MempoolId(0, 3))".to_owned(),
        "1 on 3".to_owned(),
        "free 1".to_owned(),
    ];
    assert_eq!(operations, expected);
    assert_eq!(program.recorded_failures(), Some(0));
}

/// The pages at the start of its range were mapped later.
#[test]
fn an_expandable_segment_begins_where_its_range_does() {
    let run = |addr: u64, size: u64| {
        let (address, state) = (DeviceAddr(addr), BlockState::ActiveAllocated);
        SegmentInfo {
            device: 0,
            address,
            stream: StreamId(7),
            kind: PoolKind::Large,
            pool: MempoolId::DEFAULT,
            is_expandable: true,
            blocks: vec![BlockInfo::new(address, size, size, state)],
        }
    };
    let recording = Recording {
        segments: vec![run(100 * MIB, 60 * MIB)],
        ..Recording::default()
    };
    let start = Start {
        segments: vec![run(140 * MIB, 20 * MIB)],
        ..Start::default()
    };
    let known = KnownSettings::of(Release::DEFAULT, "expandable_segments:True").unwrap();
    let state = state_at(&recording, &start, &[StreamId(0), StreamId(7)], known).unwrap();
    let parts = state.parts();
    let [part] = parts.as_slice() else {
        panic!("{parts:?}");
    };
    assert_eq!(part.offset, 40 * MIB);
    assert_eq!(part.segment.stream, StreamId::nth(1));
}
