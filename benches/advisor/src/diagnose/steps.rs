//! The steps of a program: what it does again and again.
//!
//! The first of these that shows at least [`FEWEST`]:
//! 1. marks with a number that grows: `step 3`, `ProfilerStep#3`;
//! 2. marks of the optimizer: a step lasts from one update to the next;
//! 3. a request that is made once a step. Requests are the same if the same place asks; or, if nothing
//!    shows then, if they are for as much. From one to the next the program asks for nearly the same
//!    ([`ALIKE_PERCENT`] %, in whatever order), for half of the program at least. Of the rarest such
//!    requests the one is taken before which least is live.
//!
//! If there is none, there are no steps, and whoever needs them is silent.

use std::collections::BTreeMap;
use std::ops::Range;

use super::log::{Allocation, Log, Mark};

/// Fewer are no repetition.
pub const FEWEST: usize = 3;
/// How much of what a step asks for, in requests, the next asks for, too. Data decide on some requests of
/// most programs, so not all.
pub const ALIKE_PERCENT: usize = 90;
/// Fewer requests are a loop within a step.
const SHORTEST: usize = 8;
/// So many rare requests are looked at; more would cost time, and what a step does once is rare.
const RARE: usize = 64;

/// How the steps were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The program says where they begin.
    Marked,
    /// From update to update.
    Updates,
    /// Its requests repeat.
    Periodic,
}

/// The steps of a program, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steps {
    /// How they were found.
    pub found: Found,
    /// The events of each; each begins where the one before ends.
    pub events: Vec<Range<u64>>,
}

impl Steps {
    /// The steps of the program that left this log, if it has any. `sites` tells who asked, for each
    /// allocation, as a number.
    #[must_use]
    pub fn find(log: &Log, sites: &[u32]) -> Option<Self> {
        let marked = || numbered(log).map(|begins| Self::between(Found::Marked, &begins, log));
        let updates = || updates(log).map(|begins| Self::between(Found::Updates, &begins, log));
        let by_site = || {
            periodic(
                log,
                kinds(log, |at, _| {
                    sites.get(at).map_or(0, |&site| u64::from(site))
                }),
            )
        };
        let by_size = || periodic(log, kinds(log, |_, a| a.bytes));
        let periodic = || {
            by_site()
                .or_else(by_size)
                .map(|begins| Self::upto_last(&begins))
        };
        marked().or_else(updates).or_else(periodic)
    }

    /// All steps but the first two: until then a program makes what it keeps, gradients and the state of
    /// the optimizer.
    #[must_use]
    pub fn warm(&self) -> &[Range<u64>] {
        self.events.get(2..).unwrap_or_default()
    }

    /// The event with which the last step ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |last| last.end)
    }

    /// Steps that begin at these events; the last ends with the program or at its mark `end`.
    fn between(found: Found, begins: &[u64], log: &Log) -> Self {
        let last = begins.last().copied().unwrap_or(0);
        let is_end = |mark: &&Mark| mark.tag == "end" && mark.event > last;
        let end = log.marks.iter().find(is_end).map(|mark| mark.event);
        let mut bounds = begins.to_vec();
        bounds.push(end.unwrap_or_else(|| log.end()));
        Self {
            found,
            ..Self::upto_last(&bounds)
        }
    }

    /// Steps between these events.
    fn upto_last(bounds: &[u64]) -> Self {
        let pairs = bounds.iter().zip(bounds.iter().skip(1));
        Self {
            found: Found::Periodic,
            events: pairs.map(|(&start, &end)| start..end).collect(),
        }
    }
}

/// The events of the marks with a growing number, of the name that has most of them.
fn numbered(log: &Log) -> Option<Vec<u64>> {
    let mut by_name: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Mark { event, tag } in &log.marks {
        let name = tag.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = tag.get(name.len()..).and_then(|n| n.parse().ok());
        if let (Some(number), true) = (number, name.ends_with([' ', '#', '_'])) {
            by_name.entry(name).or_default().push((number, *event));
        }
    }
    let grow = |marks: &[(u64, u64)]| marks.is_sorted_by(|(a, _), (b, _)| a < b);
    let candidates = by_name.into_values();
    let steps = candidates.filter(|marks| marks.len() >= FEWEST && grow(marks));
    let most = steps.max_by_key(Vec::len)?;
    Some(most.into_iter().map(|(_, event)| event).collect())
}

/// The events with which updates begin; of several optimizers, those of the first.
fn updates(log: &Log) -> Option<Vec<u64>> {
    let first = log.marks.iter().find(|mark| is_update(&mark.tag))?;
    let same = log.marks.iter().filter(|mark| mark.tag == first.tag);
    let begins: Vec<u64> = same.map(|mark| mark.event).collect();
    (begins.len() >= FEWEST).then_some(begins)
}

/// Whether a phase is that of the optimizer: `optimizer`, `Optimizer.step#AdamW.step`.
#[must_use]
pub fn is_update(tag: &str) -> bool {
    let tag = tag.to_ascii_lowercase();
    tag.starts_with("optimizer") && !tag.contains("zero_grad")
}

/// The events of the requests with which steps begin, if requests repeat.
fn periodic(log: &Log, (kinds, number): (Vec<usize>, usize)) -> Option<Vec<u64>> {
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
    // A step less may be complete, as the first or the last.
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

/// What each request is to be told from others by, as a number, and how many numbers there are.
fn kinds(log: &Log, what: impl Fn(usize, &Allocation) -> u64) -> (Vec<usize>, usize) {
    let mut numbers = BTreeMap::new();
    let allocations = log.allocations.iter().enumerate();
    let kinds = allocations.map(|(at, a)| {
        let next = numbers.len();
        *numbers.entry((what(at, a), a.stream)).or_insert(next)
    });
    let kinds = kinds.collect();
    (kinds, numbers.len())
}

/// The last of these places between which all is alike, if that is half of the program. `counts` has a
/// zero for each kind of request.
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

/// How many requests two steps have in common.
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
    use coalesce_workloads::families::program::Program;

    use super::super::Evidence;
    use super::super::testing::{MIB, ROOMY, burst, hold};
    use super::*;

    fn steps(program: impl Fn(&mut Program<'_>) + Send + Sync) -> Option<Steps> {
        ROOMY.gather(program, |evidence: &Evidence<'_>| evidence.steps.clone())
    }

    #[test]
    fn marks_with_numbers_come_first() {
        let found = steps(|program| {
            hold(program, 1, MIB);
            for step in 5..9 {
                program.mark(&format!("ProfilerStep#{step}"));
                burst(program, 1, MIB);
                program.mark("optimizer");
            }
        });
        let found = found.unwrap();
        assert_eq!(found.found, Found::Marked);
        assert_eq!(
            found.events,
            [1..5, 5..9, 9..13, 13..17],
            "the mark `end` is in none"
        );
        assert_eq!(found.warm().len(), 2);
    }

    #[test]
    fn updates_are_the_next_best() {
        let found = steps(|program| {
            for _ in 0..4 {
                burst(program, 1, MIB);
                program.mark("Optimizer.step#AdamW.step");
            }
        });
        let found = found.unwrap();
        assert_eq!(found.found, Found::Updates);
        assert_eq!(found.events, [2..5, 5..8, 8..11, 11..12]);
    }

    #[test]
    fn requests_that_repeat_begin_a_step_where_least_is_live() {
        let found = steps(|program| {
            hold(program, 7, 5 * MIB);
            for _ in 0..5 {
                let first = program.alloc(MIB, "several");
                (2..12).for_each(|n| program.scratch(n * MIB, "several"));
                program.free(first);
            }
        });
        let found = found.unwrap();
        assert_eq!(found.found, Found::Periodic);
        // Seven that stay, and eleven requests with their frees a step.
        assert_eq!(found.events, [7..29, 29..51, 51..73, 73..95]);
    }

    #[test]
    fn what_does_not_repeat_has_no_steps() {
        let found = steps(|program| (0..200).for_each(|n| program.scratch(n * n * 512, "")));
        assert_eq!(found, None);
        let found = steps(|program| {
            ["step 3", "step 2", "step 1"]
                .into_iter()
                .for_each(|tag| program.mark(tag))
        });
        assert_eq!(found, None, "numbers that fall");
    }
}
