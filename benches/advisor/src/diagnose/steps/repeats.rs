//! Finds what a program repeats, without knowing what it is: the steps, the layers of one forward pass or
//! the tokens of one text.
//!
//! A repetition begins with a request that occurs once in it. Two requests are the same if they have the
//! same origin, or, if that finds nothing, the same size. Between two occurrences the program must make
//! nearly the same requests (`ALIKE_PERCENT` %, in any order), and the repetitions must cover at least half
//! of the program. Among the rarest such requests, the one with the least live memory before it is used.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{FEWEST, between};
use crate::diagnose::log::{Allocation, Log};

/// The share of requests that consecutive repetitions have in common. In most programs a few requests
/// depend on the data.
const ALIKE_PERCENT: usize = 90;
/// Requests in the shortest repetition.
pub const SHORTEST: usize = 8;
/// The number of candidates examined, rarest first: requests that occur once per repetition are rare.
const RARE: usize = 64;

/// The events that repeat in a log, in order; each begins where the one before ends. `origins` numbers the
/// origin of each allocation.
#[must_use]
pub fn find(log: &Log, origins: &[u32]) -> Option<Vec<Range<u64>>> {
    let origin = |at: usize| origins.get(at).map_or(0, |&origin| u64::from(origin));
    let by_origin = || begins(log, kinds(log, |at, _| origin(at)));
    let by_size = || begins(log, kinds(log, |_, a| a.bytes));
    Some(between(&by_origin().or_else(by_size)?))
}

/// The events of the requests that begin the repetitions, if requests repeat.
fn begins(log: &Log, (kinds, number): (Vec<usize>, usize)) -> Option<Vec<u64>> {
    let mut places = vec![Vec::new(); number];
    for (at, &kind) in kinds.iter().enumerate() {
        places.get_mut(kind)?.push(at);
    }
    places.retain(|places| places.len() > FEWEST);
    places.sort_by_key(Vec::len);
    let mut counts = vec![0_usize; number];
    let rare = places.iter().take(RARE);
    let mut found: Vec<&[usize]> = rare
        .filter_map(|places| alike(places, &kinds, &mut counts))
        .collect();
    let longest = found.iter().map(|begins| begins.len()).min()?;
    // The first or the last step may be incomplete.
    found.retain(|begins| begins.len() <= longest + 1);
    let born = |at: usize| log.allocations.get(at).map_or(0, |a| a.born);
    let live_before = |&at: &usize| {
        let event = born(at).checked_sub(1);
        event.map_or(0, |event| u128::from(log.level(event).requested))
    };
    let mean =
        |begins: &&&[usize]| begins.iter().map(live_before).sum::<u128>() / begins.len() as u128;
    let quietest = found.iter().min_by_key(mean)?;
    Some(quietest.iter().map(|&at| born(at)).collect())
}

/// Numbers the different kinds of requests: the kind of each request, and the number of kinds.
fn kinds(log: &Log, what: impl Fn(usize, &Allocation) -> u64) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::new();
    let allocations = log.allocations.iter().enumerate();
    let kinds = allocations
        .map(|(at, a)| {
            let next = numbers.len();
            *numbers.entry((what(at, a), a.stream)).or_insert(next)
        })
        .collect();
    (kinds, numbers.len())
}

/// The longest suffix of these places between which the requests are alike, if it covers half of the
/// program. `counts` has a zero for each kind of request.
fn alike<'p>(places: &'p [usize], kinds: &[usize], counts: &mut [usize]) -> Option<&'p [usize]> {
    let between = |pair: &[usize]| match *pair {
        [start, end] if end - start >= SHORTEST => kinds.get(start..end),
        _ => None,
    };
    let mut start = places.len() - 1;
    let mut after: Option<&[usize]> = None;
    while let Some(earlier) = start.checked_sub(1)
        && let Some(step) = places.get(earlier..=start).and_then(between)
        && after.is_none_or(|after| {
            in_common(step, after, counts) * 100 >= step.len().max(after.len()) * ALIKE_PERCENT
        })
    {
        (start, after) = (earlier, Some(step));
    }
    let found = places.get(start..)?;
    let covered = found.last()? - found.first()?;
    (found.len() > FEWEST && covered * 2 >= kinds.len()).then_some(found)
}

/// The number of requests that two steps have in common.
fn in_common(one: &[usize], other: &[usize], counts: &mut [usize]) -> usize {
    for &kind in one {
        counts[kind] += 1;
    }
    let mut common = 0;
    for &kind in other {
        if counts[kind] > 0 {
            counts[kind] -= 1;
            common += 1;
        }
    }
    for &kind in one {
        counts[kind] = 0;
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suffix of the places of request 0 between which requests are alike, for repetitions of these requests.
    fn alike_in(repetitions: &[&[usize]], after: usize) -> Option<Vec<usize>> {
        let mut kinds: Vec<usize> = repetitions.concat();
        let places: Vec<usize> = kinds
            .iter()
            .enumerate()
            .filter(|(_, kind)| **kind == 0)
            .map(|(at, _)| at)
            .collect();
        kinds.extend(vec![99; after]);
        let mut counts = vec![0; 100];
        let found = alike(&places, &kinds, &mut counts).map(<[usize]>::to_vec);
        assert_eq!(counts, [0; 100], "left as they were");
        found
    }

    const TEN: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    #[test]
    fn four_places_with_at_least_eight_requests_between() {
        assert_eq!(alike_in(&[TEN; 4], 0), Some(vec![0, 10, 20, 30]));
        assert_eq!(alike_in(&[TEN; 3], 0), None);
        assert_eq!(alike_in(&[&TEN[..8]; 4], 0), Some(vec![0, 8, 16, 24]));
        assert_eq!(alike_in(&[&TEN[..7]; 4], 0), None);
    }

    #[test]
    fn nine_of_ten_requests_are_the_same() {
        let one_differs: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 10];
        let two_differ: &[usize] = &[0, 9, 2, 3, 4, 5, 6, 7, 11, 12];
        let longer: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let two_longer: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        let find = |second: &[usize]| alike_in(&[TEN, second, TEN, TEN, TEN, TEN, TEN], 0);
        assert_eq!(find(one_differs), Some(vec![0, 10, 20, 30, 40, 50, 60]));
        assert_eq!(
            find(two_differ),
            Some(vec![20, 30, 40, 50, 60]),
            "those behind it"
        );
        assert_eq!(find(longer), Some(vec![0, 10, 21, 31, 41, 51, 61]));
        assert_eq!(find(two_longer), Some(vec![22, 32, 42, 52, 62]));
    }

    #[test]
    fn half_of_the_program() {
        // From the first place to the last there are 30 requests.
        assert!(alike_in(&[TEN; 4], 20).is_some());
        assert_eq!(alike_in(&[TEN; 4], 21), None);
    }

    #[test]
    fn requests_in_common_are_counted_once() {
        let mut counts = [0; 5];
        assert_eq!(
            in_common(&[1, 1, 2, 3], &[1, 2, 2, 4, 1, 1], &mut counts),
            3
        );
        assert_eq!(counts, [0; 5]);
    }
}
