use Action::{Alloc, FreeCompleted, Oom, SegmentFree};

use super::*;
use crate::formats::snapshot::fixture::entry;

#[test]
fn only_completions_may_come_in_another_order() {
    let [a, b] = [1, 2].map(|addr| entry(FreeCompleted, addr, 512));
    let [c, d] = [3, 4].map(|addr| entry(SegmentFree, addr, 512));
    let last = entry(Alloc, 5, 512);
    let is_same_in_order =
        |ours: &[TraceEntry], recorded: &[TraceEntry]| is_same(ours.iter(), recorded);
    let is_alike =
        |ours: &[TraceEntry], recorded: &[TraceEntry]| is_same_but_for_order(ours.iter(), recorded);
    let recorded = [a, b, c, d, last];
    assert!(is_same_in_order(&recorded, &recorded) && is_alike(&recorded, &recorded));
    let other_order = [b, c, a, d, last];
    assert!(!is_same_in_order(&other_order, &recorded) && is_alike(&other_order, &recorded));
    for ours in [
        &[a, b, d, c, last][..],
        &[a, b, c, d],
        &[a, c, d, last],
        &[a, a, c, d, last],
        &[],
    ] {
        assert!(!is_same_in_order(ours, &recorded) && !is_alike(ours, &recorded));
    }
}

#[test]
fn the_free_memory_and_the_time_of_a_failure_may_differ() {
    let same = |one: TraceEntry, other: TraceEntry| is_same([one].iter(), &[other]);
    let failed = entry(Oom, 5, 512);
    assert!(same(
        failed,
        TraceEntry {
            addr: DeviceAddr(6),
            time_us: 7,
            ..failed
        }
    ));
    assert!(!same(
        failed,
        TraceEntry {
            size: 1024,
            ..failed
        }
    ));
    let placed = entry(Alloc, 5, 512);
    assert!(same(
        placed,
        TraceEntry {
            time_us: 7,
            ..placed
        }
    ));
    assert!(!same(
        placed,
        TraceEntry {
            addr: DeviceAddr(6),
            ..placed
        }
    ));
    assert!(!same(
        placed,
        TraceEntry {
            stream: StreamId(6),
            ..placed
        }
    ));
    assert!(!same(
        placed,
        TraceEntry {
            action: FreeCompleted,
            ..placed
        }
    ));
}
