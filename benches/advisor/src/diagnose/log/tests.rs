use coalesce_workloads::families::program::Program;

use super::*;
use crate::diagnose::testing::{MIB, Scene, written};

/// A line for each request of a program, with addresses counted in MiB from the first.
fn requests(log: &Log) -> Vec<String> {
    let first = log.allocations.first().map_or(0, |a| a.addr.0);
    let line = |a: &Allocation| {
        let place = if a.addr.is_null() {
            "nowhere".to_owned()
        } else {
            format!("at {}", a.addr.0.abs_diff(first) / MIB)
        };
        let freed = match a.freed {
            u64::MAX => "never".to_owned(),
            event => event.to_string(),
        };
        format!(
            "{} {}: {} of {} bytes, {} taken, {place}, stream {}, {}..{freed}{}{}",
            a.id,
            log.tags[a.tag as usize],
            a.bytes,
            a.block,
            a.taken,
            a.stream,
            a.born,
            if a.failed { ", failed" } else { "" },
            if a.retried { ", retried" } else { "" },
        )
    };
    log.allocations.iter().map(line).collect()
}

#[test]
fn everything_that_happens_is_logged() {
    let program = |program: &mut Program<'_>| {
        program.mark("first");
        let large = program.alloc(30 * MIB - 100, "mm");
        let small = program.alloc_on(1, 700, "loss");
        program.record_stream(&small, 0);
        program.free(large);
        program.scratch(40 * MIB, "mm");
        program.empty_cache();
        program.mark("second");
        program.scratch(60 * MIB, "cat");
        program.scratch(70 * MIB, "cat");
        program.scratch(200 * MIB, "too large");
        program.free(small);
    };
    Scene("", 100 * MIB, None).gather(program, |evidence| {
        let log = &evidence.log;
        let marks: Vec<_> = log
            .marks
            .iter()
            .map(|mark| (mark.event, &mark.tag))
            .collect();
        let (emptied, tags, level) = (&log.emptied, &log.tags, log.level(5));
        let requests = requests(log).join("\n");
        insta::assert_snapshot!(format!(
            "{requests}\nemptied {emptied:?}, marks {marks:?}, tags {tags:?}\n{level:#?}"
        ));
        assert_eq!((log.end(), log.level(log.end())), (17, Level::default()));
        assert_eq!(log.failure().map(|a| a.born), Some(13));
    });
}

/// A log with requests at these events, some of which failed.
fn of_requests(born: &[u64], failed: &[u64]) -> Log {
    let allocation = |&born: &u64| Allocation {
        id: born,
        born,
        freed: born + 10,
        addr: DeviceAddr(1),
        bytes: 1,
        block: 512,
        failed: failed.contains(&born),
        ..Allocation::default()
    };
    Log {
        allocations: born.iter().map(allocation).collect(),
        levels: [3, 7, 7, 5, 9, 9]
            .map(|reserved| Level {
                reserved,
                ..Level::default()
            })
            .to_vec(),
        ..Log::default()
    }
}

#[test]
fn requests_in_some_events() {
    let log = of_requests(&[1, 3, 4], &[]);
    let born =
        |events: Range<u64>| -> Vec<u64> { log.born_in(&events).iter().map(|a| a.born).collect() };
    assert_eq!(born(1..4), [1, 3]);
    assert_eq!(born(0..1), [0; 0]);
    assert_eq!(born(4..100), [4]);
    let found = [0, 1, 2, 4, 5].map(|event| log.index_from(event));
    assert_eq!(found, [0, 0, 1, 2, 3]);
    let first = |event| {
        log.first_request_from(event)
            .map(|(index, a)| (index, a.born))
    };
    let found = [first(3), first(4), first(5)];
    assert_eq!(found, [Some((1, 3)), Some((2, 4)), None]);
    let live = &log.allocations[0];
    let found = [0, 1, 10, 11].map(|event| live.is_live_after(event));
    assert_eq!(found, [false, true, true, false]);
    let failed = of_requests(&[1], &[1]);
    assert!(!failed.allocations[0].is_live_after(2));
}

#[test]
fn the_failure_that_ends_the_program_or_the_first_one() {
    let failure = |failed: &[u64]| of_requests(&[1, 3, 4], failed).failure().map(|a| a.born);
    assert_eq!(failure(&[]), None);
    assert_eq!(failure(&[1, 3]), Some(1));
    assert_eq!(failure(&[1, 4]), Some(4));
}

#[test]
fn the_first_of_several_peaks() {
    let log = of_requests(&[], &[]);
    let peak = |events: Range<u64>| log.peak(&events, |level| level.reserved);
    assert_eq!(peak(0..6), Some((4, 9)));
    assert_eq!(peak(1..4), Some((1, 7)));
    assert_eq!(peak(3..3), None);
    assert_eq!(peak(2..100), Some((4, 9)));
    let levels = |events: Range<u64>| log.levels_in(&events).len();
    assert_eq!([levels(2..4), levels(4..100), levels(100..200)], [2, 2, 0]);
}

#[test]
fn the_phase_of_an_event() {
    let mark = |event, tag: &str| Mark {
        event,
        tag: tag.to_owned(),
    };
    let log = Log {
        marks: vec![mark(2, "a"), mark(5, "b")],
        ..Log::default()
    };
    let phase = |event| log.phase(event).map(|mark| &mark.tag[..]);
    let found = [1, 2, 4, 5, 9].map(phase);
    assert_eq!(found, [None, Some("a"), Some("a"), Some("b"), Some("b")]);
}

/// Each event takes memory; requests, and tags that are new, take more.
#[test]
fn the_memory_that_a_log_takes() {
    let mut log = Log::of(&written(|_| {}));
    log.tag("known");
    let request = |tag| {
        let (id, bytes, stream) = (1, 2, 3);
        log.bytes_of(Op::Malloc {
            id,
            bytes,
            stream,
            tag,
        })
    };
    let event = log.bytes_of(Op::Free { id: 1 });
    assert!(event > 0 && request("known") > event + 64);
    assert_eq!(request("new") - request("known"), 128 + 2 * 3);
    assert_eq!(log.bytes_of(Op::Mark { tag: "phase" }) - event, 128 + 2 * 5);
    assert!(
        log.account.is_none(),
        "a generated workload may take any amount"
    );
}
