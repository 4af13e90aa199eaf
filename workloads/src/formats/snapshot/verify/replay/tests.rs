use Action::{Alloc, FreeCompleted, SegmentFree};

use super::*;
use crate::formats::snapshot::fixture::{entries, entry};

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
    for (one, other, is_same_as) in [
        ("oom 5 512", "oom 6 512 at 7", true),
        ("oom 5 512", "oom 5 1024", false),
        ("alloc 5 512", "alloc 5 512 at 7", true),
        ("alloc 5 512", "alloc 6 512", false),
        ("alloc 5 512", "alloc 5 512 on 6", false),
        ("alloc 5 512", "free_completed 5 512", false),
    ] {
        let found = is_same(entries(one).iter(), &entries(other));
        assert_eq!(found, is_same_as, "{one}, {other}");
    }
}
