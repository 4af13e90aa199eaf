use coalesce_alloc::snapshot::BlockState;
use coalesce_workloads::families::program::Program;
use coalesce_workloads::surroundings::Change;

use super::*;
use crate::diagnose::testing::{GIB, MIB, Scene, burst, hold};

/// A segment: address, bytes, stream, whether it is expandable, and its kind.
type Extent = (u64, u64, u64, bool, PoolKind);

/// Sizes that fragment, on two streams that use each other's memory, and an emptied cache.
fn program(program: &mut Program<'_>) {
    hold(program, 3, 100);
    for round in 1..6 {
        burst(program, 3, round * 7 * MIB);
        let shared = program.alloc_on(1, round * 9 * MIB, "shared");
        program.record_stream(&shared, 0);
        program.free(shared);
        hold(program, 1, 3 * MIB);
        burst(program, 2, 200_000 * round);
        if round == 3 {
            program.empty_cache();
        }
    }
    // More than is left: cached segments are returned to the device.
    burst(program, 1, 190 * MIB);
}

/// The segments after an event, from the history.
fn extents(history: &SegmentHistory, event: u64) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for change in history.changes.iter().take_while(|c| c.event <= event) {
        let (from, to) = (change.address.0, change.address.0 + change.bytes);
        if change.is_taken {
            let stream = change.stream;
            extents.push((
                from,
                change.bytes,
                stream,
                change.is_expandable,
                change.kind,
            ));
            continue;
        }
        extents = extents
            .into_iter()
            .flat_map(|(start, bytes, stream, is_expandable, kind)| {
                let end = start + bytes;
                let parts = if start < to && from < end {
                    [(start, from.max(start)), (to.min(end), end)]
                } else {
                    [(start, end), (end, end)]
                };
                let parts = parts.into_iter().filter(|(start, end)| start < end);
                parts.map(move |(start, end)| (start, end - start, stream, is_expandable, kind))
            })
            .collect();
    }
    extents.sort_by_key(|extent| extent.0);
    // Pages of one expandable segment.
    extents.dedup_by(|next, before| {
        let is_one = next.3 && before.3 && before.0 + before.1 == next.0 && before.2 == next.2;
        let is_one = is_one && before.4 == next.4;
        before.1 += if is_one { next.1 } else { 0 };
        is_one
    });
    extents
}

#[test]
fn the_history_gives_the_segments_and_blocks_after_every_event() {
    for conf in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        Scene(conf, GIB / 4, None).gather(program, |evidence| {
            let history = SegmentHistory::of(evidence).unwrap();
            let (mut returned, mut pending) = (0, 0);
            returned += history.changes.iter().filter(|one| !one.is_taken).count();
            for event in 0..evidence.log.end() {
                let segments = evidence.subject.segments_after(event).unwrap();
                let expected: Vec<Extent> = segments
                    .iter()
                    .map(|one| {
                        let (at, stream) = (one.address.0, one.stream.index());
                        (at, one.total_size(), stream, one.is_expandable, one.kind)
                    })
                    .collect();
                assert_eq!(extents(&history, event), expected, "'{conf}' after {event}");

                let blocks = segments.iter().flat_map(|one| &one.blocks);
                let waiting = blocks.filter(|one| one.state == BlockState::ActivePendingFree);
                let mut expected: Vec<u64> = waiting.map(|one| one.address.0).collect();
                let all = evidence.log.allocations.iter().zip(&history.released);
                let waiting =
                    all.filter(|(one, released)| one.freed <= event && event < **released);
                let mut found: Vec<u64> = waiting.map(|(one, _)| one.addr.0).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "'{conf}' after {event}");
                pending += found.len();
            }
            assert!(returned > 0 && pending > 0, "'{conf}' {returned} {pending}");
        });
    }
}

/// A block that still waits for a stream at the end never becomes free; a failed request has none.
#[test]
fn blocks_that_wait_at_the_end() {
    let released = Scene("", 100 * MIB, None).gather(
        |program| {
            program.around(Change::HoldEvents(true));
            let waits = program.alloc(9 * MIB, "waits");
            let freed = program.alloc(20 * MIB, "freed");
            program.free(freed);
            program.scratch(500 * MIB, "too large");
            program.record_stream(&waits, 1);
            program.free(waits);
            let _ = program.alloc(MIB, "stays");
        },
        |evidence| SegmentHistory::of(evidence).unwrap().released,
    );
    assert_eq!(released, [u64::MAX, 3, 5, u64::MAX]);
}

/// The request that takes the address of a block is the event at which that block becomes free.
#[test]
fn a_block_that_waits_until_its_address_is_used_again() {
    let released = Scene::with_conf("").gather(
        |program| {
            let waits = program.alloc(30 * MIB, "waits");
            program.record_stream(&waits, 1);
            program.free(waits);
            program.scratch(30 * MIB, "again");
        },
        |evidence| {
            let addresses: Vec<_> = evidence.log.allocations.iter().map(|a| a.addr).collect();
            assert_eq!(addresses[0], addresses[1]);
            SegmentHistory::of(evidence).unwrap().released
        },
    );
    assert_eq!(released, [3, 4]);
}
