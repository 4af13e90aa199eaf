use Action::{Alloc, SegmentAlloc, SegmentFree};
use coalesce_alloc::snapshot::SegmentInfo;

use super::*;
use crate::formats::snapshot::fixture::{self, entry};

const MIB: u64 = 1 << 20;

/// Segments of 20 MiB are at multiples of 100 MiB. `+2` takes the segment 2, `-2` returns it, and `0` is another entry.
fn entries(steps: &[i64]) -> Vec<TraceEntry> {
    let entries = steps.iter().map(|&step| {
        let action = match step.signum() {
            1 => SegmentAlloc,
            0 => Alloc,
            _ => SegmentFree,
        };
        entry(action, step.unsigned_abs() * 100 * MIB, 20 * MIB)
    });
    entries.collect()
}

fn segment(number: u64, pool: MempoolId) -> SegmentInfo {
    SegmentInfo {
        pool,
        ..fixture::segment(&format!("{}M", number * 100))
    }
}

fn gone_in(entries: Vec<TraceEntry>, segments: Vec<SegmentInfo>) -> GoneSegments {
    GoneSegments::of(&Recording {
        entries,
        segments,
        ..Recording::default()
    })
}

fn gone(steps: &[i64]) -> GoneSegments {
    gone_in(entries(steps), Vec::new())
}

/// The segment of a number that was taken by the entry with an index.
fn key(number: u64, first: usize) -> Key {
    (DeviceAddr(number * 100 * MIB), first)
}

/// A pool of the user with this number.
fn pool(number: u64) -> MempoolId {
    MempoolId(0, number)
}

#[test]
fn a_segment_is_gone_from_the_entry_that_takes_it_to_the_one_that_returns_it() {
    // The second is there at the start, and later again.
    let gone = gone(&[1, 0, -2, 0, -1, 2, 0, -2, 3]);
    let keys: Vec<Key> = gone.segments.keys().copied().collect();
    assert_eq!(keys, [key(1, 0), key(2, 0), key(2, 5)]);
    let around = |number: u64, offset: u64, entry| {
        gone.around(DeviceAddr(number * 100 * MIB + offset), entry)
    };
    for (entry, expected) in [(0, Some(key(1, 0))), (4, Some(key(1, 0))), (5, None)] {
        assert_eq!(around(1, 0, entry), expected, "{entry}");
        assert_eq!(
            gone.contains(DeviceAddr(100 * MIB), entry),
            expected.is_some()
        );
    }
    let second = [0, 2, 3, 4, 5, 7, 8].map(|entry| around(2, 0, entry));
    let (first, later) = (Some(key(2, 0)), Some(key(2, 5)));
    assert_eq!(second, [first, first, None, None, later, later, None]);
    assert_eq!(around(2, 20 * MIB - 1, 5), later);
    assert_eq!(
        [
            around(2, 20 * MIB, 5),
            around(3, 0, 8),
            gone.around(DeviceAddr(1), 0)
        ],
        [None; 3]
    );
}

#[test]
fn private_pools_are_likely_if_they_are_known_or_small_segments_come_first() {
    let with = |sizes: &[u64], segments: Vec<SegmentInfo>| {
        let entries = (1..).zip(sizes).map(|(number, &size)| match size {
            0 => entry(Alloc, 1, 1),
            size => entry(SegmentFree, number * 100 * MIB, size),
        });
        gone_in(entries.collect(), segments).is_any_private()
    };
    let (small, large) = (2 * MIB, 20 * MIB);
    assert!(with(&[small, large], vec![]));
    for sizes in [
        &[][..],
        &[large, small],
        &[small, small],
        &[large, large],
        &[small, 0, large],
    ] {
        assert!(
            !with(sizes, vec![segment(50, MempoolId::DEFAULT)]),
            "{sizes:?}"
        );
        let is_any = !sizes.is_empty();
        assert_eq!(with(sizes, vec![segment(50, pool(3))]), is_any, "{sizes:?}");
    }
}

#[test]
fn segments_are_guessed_together_by_what_took_and_returned_them() {
    use Together::*;

    // Two runs of returns: 1 and 2 with 3, whose order separates parts; then 4 with 5.
    let mut entries = entries(&[1, 3, 0, -3, -1, -2, 0, 4, 5, 6, 0, -4, -5]);
    entries[9].stream = StreamId(8);
    let entries = [entries, vec![entry(SegmentFree, 600 * MIB, 20 * MIB)]].concat();
    let gone = gone_in(entries, Vec::new());
    let together = |key, how| -> Vec<u64> {
        let keys = gone.together(key, how).into_iter();
        keys.map(|(addr, _)| addr.0 / (100 * MIB)).collect()
    };
    for (how, of_one, of_four) in [
        (TakenAndReturned, &[1, 2][..], &[4, 5][..]),
        (Taken, &[1, 2, 3], &[4, 5]),
        (ReturnedInPart, &[1, 2], &[4, 5, 6]),
        (ReturnedLater, &[1, 2], &[4, 5, 6]),
        (Returned, &[1, 2, 3], &[4, 5, 6]),
        (Alone, &[1], &[4]),
    ] {
        assert_eq!(together(key(1, 0), how), of_one, "{how:?}");
        assert_eq!(together(key(4, 7), how), of_four, "{how:?}");
        assert!(together(key(4, 8), how).is_empty(), "no such segment");
    }
    assert_eq!(together(key(5, 8), ReturnedLater), [5, 6]);
}

#[test]
fn a_segment_is_likely_in_the_pool_of_those_taken_with_it() {
    // Segment 5 is there at the end; it was taken with 1 and 2.
    let steps = entries(&[1, 2, 5, 0, -1, 3, 4, 0, -2, -3, -4]);
    let gone = gone_in(
        steps,
        vec![segment(5, pool(7)), segment(6, MempoolId(9, 0))],
    );
    let likely = |number, first, guess: &[(Key, MempoolId)]| {
        gone.likely_pool(key(number, first), &guess.iter().copied().collect())
    };
    assert_eq!(
        likely(1, 0, &[(key(2, 1), pool(3))]),
        pool(7),
        "the known one"
    );
    assert_eq!(
        likely(3, 5, &[]),
        pool(10),
        "a new one, behind that of a graph"
    );
    assert_eq!(likely(3, 5, &[(key(4, 6), pool(3))]), pool(3));
    assert_eq!(likely(3, 5, &[(key(1, 0), pool(12))]), pool(13));
    let none = GoneSegments::default();
    assert_eq!(none.new_pool(&Assignment::new()), pool(1));
}

#[test]
fn a_pool_takes_all_segments_before_it_returns_any() {
    // 1 lives in the entries 0 to 2, 2 in 1 to 3, 3 in 3 to 5.
    let gone = gone(&[1, 2, -1, 3, -2, -3]);
    let is_possible = |pools: [u64; 3]| {
        let keys = [key(1, 0), key(2, 1), key(3, 3)];
        let guess = keys
            .into_iter()
            .zip(pools)
            .filter(|(_, number)| *number > 0);
        gone.is_possible(&guess.map(|(key, number)| (key, pool(number))).collect())
    };
    for pools in [[0, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 2], [1, 2, 2]] {
        assert!(is_possible(pools), "{pools:?}");
    }
    for pools in [[1, 0, 1], [1, 1, 1], [2, 1, 2]] {
        assert!(!is_possible(pools), "{pools:?}");
    }
}

#[test]
fn guessed_pools_are_numbered_by_their_first_segment() {
    let steps = entries(&[4, 3, 2, 1, 0, -1, -2, -3, -4]);
    let gone = gone_in(
        steps,
        vec![segment(5, pool(2)), segment(6, MempoolId(4, 0))],
    );
    let keys = [key(1, 3), key(2, 2), key(3, 1), key(4, 0)];
    let numbered = |pools: [u64; 4]| {
        let guess = keys.into_iter().zip(pools.map(pool)).collect();
        let first = Pools::first(&gone, guess);
        let counts = (
            first.assigned.len(),
            first.assigned.values().collect::<BTreeSet<_>>().len(),
        );
        assert_eq!(first.counts(), counts);
        assert!(!first.is_empty() && first.tried.contains(&first.assigned));
        keys.map(|key| first.assigned[&key].1)
    };
    assert_eq!(numbered([20, 30, 40, 50]), [6, 5, 3, 1]);
    assert_eq!(numbered([20, 20, 40, 20]), [1, 1, 3, 1]);
    // Those at the end keep their ids.
    assert_eq!(numbered([2, 20, 2, 30]), [2, 3, 2, 1]);
    assert!(Pools::default().is_empty());
}

/// The guesses after differences at an entry, until none is left, each as the pools of the segments 1 to 4.
fn refinements(
    gone: &GoneSegments,
    keys: &[Key],
    first: usize,
    recorded: &[i64],
    ours: &[i64],
) -> Vec<String> {
    let (recorded, ours) = (entries(recorded), entries(ours));
    let mut pools = Pools::default();
    let mut found = Vec::new();
    while let Some(next) = pools.refined(gone, first, &recorded, &ours) {
        let numbers = keys.iter().map(|key| {
            let pool = next.around(gone, key.0, key.1).unwrap();
            pool.1.to_string()
        });
        found.push(numbers.collect::<Vec<_>>().join(" "));
        pools.reject(next);
    }
    found
}

#[test]
fn guesses_begin_with_the_fewest_pools_and_end() {
    // The program requests segments 1 and 2, then 3 and 4. It returns 1 and 3 together, then 2 and 4.
    let steps = [1, 2, 0, -9, 3, 4, 0, -1, -3, 0, -2, -4];
    let gone = gone(&steps);
    let keys = [key(1, 0), key(2, 1), key(3, 4), key(4, 5)];
    // The replay returns segment 4 as well.
    let found = refinements(&gone, &keys, 7, &[-1, -3], &[-1, -3, -4]);
    assert_eq!(found, ["0 0 0 1", "0 0 1 1", "0 1 0 1"]);
    // Nothing concerns a segment that was gone at the end.
    assert!(refinements(&gone, &keys, 7, &[-1], &[-1]).is_empty());
    assert!(refinements(&gone, &keys, 7, &[-1, 8], &[-1]).is_empty());
    // The first entry that differs; both sides are suspects.
    let of_recorded = refinements(&gone, &keys, 4, &[3], &[]);
    let of_ours = refinements(&gone, &keys, 7, &[], &[-3]);
    assert_eq!(of_recorded, of_ours);
    assert!(
        of_recorded
            .iter()
            .all(|guess| guess.split(' ').nth(2) != Some("0")),
        "{of_recorded:?}"
    );
}

#[test]
fn suspects_are_what_only_we_return_and_the_first_difference() {
    let gone = gone(&[1, 2, 3, 0, -1, -2, -3]);
    let suspects = |first, recorded: &[i64], ours: &[i64]| {
        suspects(&gone, first, &entries(recorded), &entries(ours))
    };
    let [one, two, three] = [key(1, 0), key(2, 1), key(3, 2)];
    // What only we return, all at once; then the first difference in each.
    assert_eq!(
        suspects(4, &[-2], &[-1, -2, -3]),
        [vec![one, three], vec![two], vec![one]]
    );
    assert_eq!(suspects(4, &[-1, -2], &[-1]), [vec![two]]);
    // At that index, the segment is not there any more.
    assert_eq!(suspects(5, &[-2, -1], &[-2]), Vec::<Vec<Key>>::new());
    assert_eq!(suspects(4, &[-1], &[-1, -2]), [vec![two], vec![two]]);
    assert!(suspects(4, &[-1, -2], &[-1, -2]).is_empty());
    assert_eq!(suspects(0, &[1, 2], &[2, 2]), [[one]]);
}

/// The segments of other times that begin between a segment and an address are few.
#[test]
fn a_segment_is_found_behind_63_of_another_time() {
    let around = |others: u64| {
        let large = (1000 * MIB, 1000 * MIB);
        let others = (1..=others).map(|number| ((1000 + 2 * number) * MIB, 2 * MIB));
        let lives = [large].into_iter().chain(others).flat_map(|(addr, size)| {
            [SegmentAlloc, SegmentFree].map(|action| entry(action, addr, size))
        });
        let gone = gone_in(lives.collect(), Vec::new());
        gone.around(DeviceAddr(1999 * MIB), 0)
    };
    let found = Some((DeviceAddr(1000 * MIB), 0));
    assert_eq!([0, 1, 63, 64].map(around), [found, found, found, None]);
}
