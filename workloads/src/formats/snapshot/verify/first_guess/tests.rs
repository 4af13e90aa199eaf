use coalesce_alloc::driver::DeviceAddr;

use super::super::observed::Observed;
use super::*;

/// A segment of the default stream that was gone at the end.
fn gone(number: usize, (run, part, may_be_of_default): (usize, usize, bool)) -> Observed {
    Observed {
        key: (DeviceAddr(100 * number as u64), number),
        stream: StreamId::DEFAULT,
        known: None,
        returned: Some(Returned {
            run,
            part,
            may_be_of_default,
        }),
        differs_from: BTreeSet::new(),
        idle_after: BTreeSet::new(),
    }
}

/// A segment that was there at the end.
fn kept(number: usize, pool: MempoolId) -> Observed {
    Observed {
        known: Some(pool),
        returned: None,
        ..gone(number, (0, 0, false))
    }
}

impl Observed {
    fn unlike(self, others: &[usize]) -> Self {
        Self {
            differs_from: others.iter().copied().collect(),
            ..self
        }
    }

    fn idle_after(self, runs: &[usize]) -> Self {
        Self {
            idle_after: runs.iter().copied().collect(),
            ..self
        }
    }

    fn on(self, stream: u64) -> Self {
        Self {
            stream: StreamId(stream),
            ..self
        }
    }
}

/// The pool of each segment by all tastes: 0 for the default pool, `-` for segments that were there at the end.
fn guesses(segments: Vec<Observed>, requests: &[usize]) -> Vec<String> {
    let observations = Observations {
        segments,
        requests: requests.to_vec(),
    };
    let guess = |taste| {
        let guess = observations.guess(taste);
        let segments = observations.segments.iter();
        let pools = segments.map(|one| match (one.known, guess.get(&one.key)) {
            (Some(_), None) => "-".to_owned(),
            (None, Some(MempoolId(0, number))) => number.to_string(),
            (None, None) => "0".to_owned(),
            other => panic!("{other:?}"),
        });
        pools.collect::<Vec<_>>().join(" ")
    };
    Taste::ALL.into_iter().map(guess).collect()
}

const LAST: (usize, usize, bool) = (9, 9, true);

#[test]
fn segments_that_differ_are_in_different_pools() {
    let segments = vec![
        gone(0, LAST),
        gone(1, LAST).unlike(&[0]),
        gone(2, LAST).unlike(&[0, 1]),
        gone(3, LAST).unlike(&[2]),
    ];
    let by_taste = guesses(segments, &[0, 1, 2, 3]);
    // The fourth may be in the pool of the request before it, unless that is the third's, or in the default one.
    assert_eq!(by_taste, ["0 1 2 0"; 6]);
    let segments = vec![gone(0, LAST), gone(1, LAST).unlike(&[0]), gone(2, LAST)];
    let [current, default] = ["0 1 1", "0 1 0"];
    assert_eq!(guesses(segments, &[0, 1, 2]), [current, default].repeat(3));
    let segments = vec![gone(0, LAST), gone(1, LAST).unlike(&[0]), gone(2, LAST)];
    // The first is used again, and its pool is the last one then.
    assert_eq!(guesses(segments, &[0, 1, 0, 2]), ["0 1 0"; 6]);
    // Without a request, a segment stays in the default pool.
    let segments = vec![gone(0, LAST), gone(1, LAST).unlike(&[0])];
    assert_eq!(guesses(segments, &[0]), ["0 0"; 6]);
}

#[test]
fn new_pools_are_numbered_behind_the_known_ones() {
    let known = [MempoolId::DEFAULT, MempoolId(0, 4), MempoolId(7, 0)];
    let mut segments: Vec<Observed> = (0..3).map(|at| kept(at, known[at])).collect();
    segments.push(gone(3, LAST).unlike(&[0, 1, 2]));
    segments.push(gone(4, LAST).unlike(&[0, 1, 2, 3]));
    assert_eq!(guesses(segments, &[0, 1, 2, 3, 4]), ["- - - 8 9"; 6]);
}

/// A stream has its own latest pools; the default pool is tried for all.
#[test]
fn streams_have_their_own_latest_pools() {
    let segments = || {
        vec![
            gone(0, LAST),
            gone(1, LAST).unlike(&[0]),
            gone(2, LAST).on(5).unlike(&[0]),
            gone(3, LAST).on(5).unlike(&[0]),
            gone(4, LAST).unlike(&[0, 1]),
            gone(5, LAST).unlike(&[0]),
            gone(6, LAST).unlike(&[0, 4]),
        ]
    };
    let expected = "0 1 2 2 3 3 1";
    assert_eq!(guesses(segments(), &[0, 1, 2, 3, 4, 5, 6]), [expected; 6]);
    // The second is used again before the sixth.
    let expected = "0 1 2 2 3 1 1";
    assert_eq!(
        guesses(segments(), &[0, 1, 2, 3, 4, 1, 5, 6]),
        [expected; 6]
    );
}

#[test]
fn the_default_pool_has_no_segment_that_it_would_have_returned() {
    // Not in the order of the default pool.
    assert_eq!(guesses(vec![gone(0, (1, 1, false))], &[0]), ["1"; 6]);
    // Nothing is known of the end of a segment.
    let unknown = Observed {
        returned: None,
        ..gone(0, LAST)
    };
    assert_eq!(guesses(vec![unknown], &[0]), ["0"; 6]);
    // A run that left a free segment of the default pool emptied private ones.
    let default = MempoolId::DEFAULT;
    let segments = |run| vec![kept(0, default).idle_after(&[3]), gone(1, (run, 1, true))];
    assert_eq!(guesses(segments(3), &[0, 1]), ["- 1"; 6]);
    assert_eq!(guesses(segments(4), &[0, 1]), ["- 0"; 6]);
    // One of a private pool, or one that is gone, says nothing about the run.
    let private = vec![
        kept(0, MempoolId(0, 1)).idle_after(&[3]),
        gone(1, (3, 1, true)),
    ];
    assert_eq!(guesses(private, &[1]), ["- 0"; 6]);
    // A segment that was free after the default pool returned its own was in another one.
    let segments = |after| {
        let free = gone(1, LAST).idle_after(&[after]);
        vec![gone(0, (3, 1, true)), free]
    };
    assert_eq!(guesses(segments(3), &[0, 1]), ["0 1"; 6]);
    assert_eq!(guesses(segments(4), &[0, 1]), ["0 0"; 6]);
}

#[test]
fn a_private_pool_returns_its_segments_together() {
    // In the same part, in another part of the run, in another run.
    let private = |number, (run, part)| gone(number, (run, part, false));
    let of = |place| vec![private(0, (1, 1)), private(1, place)];
    let together = ["1 1"; 6];
    assert_eq!(guesses(of((1, 1)), &[0, 1]), together);
    let [apart, one] = ["1 2", "1 1"];
    assert_eq!(
        guesses(of((1, 2)), &[0, 1]),
        [apart, apart, one, one, one, one]
    );
    assert_eq!(
        guesses(of((2, 2)), &[0, 1]),
        [apart, apart, apart, apart, one, one]
    );
    // One that is there at the end was not returned with any.
    let kept = || vec![kept(0, MempoolId(0, 1)), private(1, (1, 1))];
    let [apart, one] = ["- 2", "- 1"];
    assert_eq!(
        guesses(kept(), &[0, 1]),
        [apart, apart, apart, apart, one, one]
    );
}
