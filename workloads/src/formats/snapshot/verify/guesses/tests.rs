use coalesce_alloc::driver::{DeviceAddr, DriverError};
use coalesce_alloc::release::Release;

use super::*;
use crate::formats::snapshot::fixture::recording;

const MIB: u64 = 1 << 20;

fn deviation(error: Option<Error>, ranges: &[(u64, u64)]) -> Deviation {
    let ranges = ranges
        .iter()
        .map(|&(start, bytes)| (DeviceAddr(start), bytes));
    Deviation {
        ours: Vec::new(),
        error,
        ranges: ranges.collect(),
    }
}

/// The calls, by their kind and their last entry.
fn calls(guesses: &Guesses) -> Vec<(CallKind, Range<usize>)> {
    let calls = guesses.calls.iter();
    calls.map(|call| (call.kind, call.entries())).collect()
}

/// A segment is returned right before another is taken.
#[test]
fn returns_before_a_malloc_are_of_either_call() {
    let recording = recording(
        "free_requested 1M 20M\nfree_completed 1M 20M\nsegment_free 1M 20M\nsegment_alloc 100M 30M\n\
         alloc 100M 30M\nfree_requested 100M 30M\nsegment 100M | ~30M",
    );
    let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
    let first = Guesses::first(&prepared, None);
    use CallKind::{EmptyCache, Free, FreeRequest, Malloc};
    let apart = [
        (Free, 0..2),
        (EmptyCache, 2..3),
        (Malloc, 3..5),
        (FreeRequest, 5..6),
    ];
    let together = [(Free, 0..2), (Malloc, 2..5), (FreeRequest, 5..6)];
    // The device had no room for both segments.
    assert_eq!(calls(&first), together);
    let none = deviation(None, &[]);
    let refine = |guesses: &Guesses, index| guesses.refine(&prepared, index, &none, &[]);
    for other in [0, 2, 3] {
        assert!(refine(&first, other).is_none(), "{other}");
    }
    let second = refine(&first, 1).unwrap();
    assert!(second.must_help);
    assert_eq!(calls(&second.guesses), apart);
    // It is decided once.
    for index in [1, 2] {
        assert!(refine(&second.guesses, index).is_none());
    }
    let mut rejected = first.clone();
    rejected.reject(second.guesses.clone());
    assert_eq!(calls(&rejected), together);
    assert!(refine(&rejected, 1).is_none());
    // The other way round.
    let mut undecided = second.guesses;
    undecided.decided.clear();
    for other in [0, 2, 3] {
        assert!(refine(&undecided, other).is_none(), "{other}");
    }
    let again = refine(&undecided, 1).unwrap();
    assert_eq!(calls(&again.guesses), together);
    assert!(again.must_help && again.guesses.remarks().is_empty());
}

/// New pages lie where the range of another expandable segment is taken to reach.
#[test]
fn a_range_in_the_way_is_shorter() {
    let recording = recording(
        "conf expandable_segments:True\nsegment_map 100M 20M\nalloc 100M 20M\nsegment 100M pages | 20M",
    );
    let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
    let first = Guesses::first(&prepared, None);
    assert_eq!(first.memory, 1 << 41);
    let known = Guesses::first(&prepared, Some(7));
    assert_eq!(known.memory, 7);
    let failed = || Some(Error::VirtualMemory(DriverError::OutOfMemory));
    let refine = |guesses: &Guesses, error, ranges: &[(u64, u64)]| {
        let refined = guesses.refine(&prepared, 0, &deviation(error, ranges), &[])?;
        assert!(!refined.must_help);
        Some(refined.guesses.memory)
    };
    // 45 small pages of 2 MiB fit between.
    let range = [(9 * MIB, 1 << 40)];
    assert_eq!(refine(&first, failed(), &range), Some(90 * MIB / 9 * 8));
    let shortest = Guesses {
        memory: 90 * MIB / 9 * 8 + 1,
        ..first.clone()
    };
    assert_eq!(refine(&shortest, failed(), &range), Some(90 * MIB / 9 * 8));
    let shorter = Guesses {
        memory: 90 * MIB / 9 * 8,
        ..first.clone()
    };
    assert_eq!(refine(&shorter, failed(), &range), None);
    assert_eq!(refine(&first, None, &range), None);
    assert_eq!(refine(&first, failed(), &[(9 * MIB, MIB)]), None);
    assert_eq!(refine(&first, failed(), &[(100 * MIB, MIB)]), None);
}

/// The call that took the next segment returned one itself, before which the cache was emptied.
#[test]
fn a_malloc_is_split_at_one_place_only() {
    let recording = recording(
        "segment_free 1M 20M\nsegment_free 50M 20M\nsegment_alloc 100M 30M\nalloc 100M 30M\nsegment 100M | 30M",
    );
    let prepared = Prepared::new(&recording, Release::DEFAULT).unwrap();
    use CallKind::{EmptyCache, Malloc};
    let mut guesses = Guesses::first(&prepared, None);
    guesses.calls = Arc::new(vec![Call::new(EmptyCache, 0..1), Call::new(Malloc, 1..4)]);
    let none = deviation(None, &[]);
    let together = guesses.refine(&prepared, 0, &none, &[]).unwrap().guesses;
    assert_eq!(calls(&together), [(Malloc, 0..4)]);
    assert!(together.refine(&prepared, 0, &none, &[]).is_none());
}
