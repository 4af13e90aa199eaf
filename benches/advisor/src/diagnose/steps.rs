//! Recognises the steps of a program, its repeated iterations.
//!
//! Uses the first of these methods that finds at least [`FEWEST`] steps:
//! 1. marks with increasing numbers, such as `step 3` or `ProfilerStep#3`;
//! 2. marks of the optimizer: a step lasts from one optimizer step to the next;
//! 3. a request that occurs once per step. Two requests are the same if they have the same origin, or, if
//!    that finds nothing, the same size. Between two occurrences the program must make nearly the same
//!    requests ([`ALIKE_PERCENT`] %, in any order), and the steps must cover at least half of the program.
//!    Among the rarest such requests, the one with the least live memory before it is used.
//!
//! If none of them succeeds, the rules that need steps report nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use super::log::{Allocation, Log, Mark};

/// The fewest repetitions that count as steps.
pub const FEWEST: usize = 3;
/// The share of requests that consecutive steps have in common. In most programs a few requests depend on
/// the data.
pub const ALIKE_PERCENT: usize = 90;
/// Requests in the shortest step; shorter repetitions are loops within a step.
const SHORTEST: usize = 8;
/// The number of candidates examined, rarest first: requests that occur once per step are rare.
const RARE: usize = 64;

/// How steps were recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepSource {
    /// Numbered marks.
    Marked,
    /// Marks of the optimizer.
    Updates,
    /// Repeated requests.
    Periodic,
}

/// The steps of a program, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steps {
    /// How they were recognised.
    pub source: StepSource,
    /// The events of each; each begins where the one before ends.
    pub events: Vec<Range<u64>>,
}

impl Steps {
    /// Recognises the steps in a log. `origins` numbers the origin of each allocation.
    #[must_use]
    pub fn find(log: &Log, origins: &[u32]) -> Option<Self> {
        let marked = || numbered(log).map(|begins| Self::starting(StepSource::Marked, begins, log));
        let updates =
            || updates(log).map(|begins| Self::starting(StepSource::Updates, begins, log));
        let origin = |at: usize| origins.get(at).map_or(0, |&origin| u64::from(origin));
        let by_origin = || periodic(log, kinds(log, |at, _| origin(at)));
        let by_size = || periodic(log, kinds(log, |_, a| a.bytes));
        let periodic = || by_origin().or_else(by_size);
        marked()
            .or_else(updates)
            .or_else(|| Some(Self::between(StepSource::Periodic, &periodic()?)))
    }

    /// All steps after the second. The first two allocate what a program keeps: gradients and optimizer
    /// state.
    #[must_use]
    pub fn warm(&self) -> &[Range<u64>] {
        self.events.get(2..).unwrap_or_default()
    }

    /// The events of the warm steps together.
    #[must_use]
    pub fn warm_events(&self) -> Option<Range<u64>> {
        let warm = self.warm();
        Some(warm.first()?.start..warm.last()?.end)
    }

    /// The event at which the last step ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |last| last.end)
    }

    /// Steps that begin at these events. The last ends with the program or at its mark `end`.
    fn starting(source: StepSource, begins: Vec<u64>, log: &Log) -> Self {
        let last = begins.last().copied().unwrap_or(0);
        let is_end = |mark: &&Mark| mark.tag == "end" && mark.event > last;
        let end = log.marks.iter().find(is_end).map(|mark| mark.event);
        let mut bounds = begins;
        bounds.push(end.unwrap_or_else(|| log.end()));
        Self::between(source, &bounds)
    }

    /// Steps between these events.
    fn between(source: StepSource, bounds: &[u64]) -> Self {
        let pairs = bounds.iter().zip(bounds.iter().skip(1));
        Self {
            source,
            events: pairs.map(|(&start, &end)| start..end).collect(),
        }
    }
}

/// The events of the marks with increasing numbers; of several names, the one with most marks.
fn numbered(log: &Log) -> Option<Vec<u64>> {
    let mut by_name: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Mark { event, tag } in &log.marks {
        let name = tag.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = tag.get(name.len()..).and_then(|n| n.parse().ok());
        if let (Some(number), true) = (number, name.ends_with([' ', '#', '_'])) {
            by_name.entry(name).or_default().push((number, *event));
        }
    }
    let increase = |marks: &[(u64, u64)]| marks.is_sorted_by(|(a, _), (b, _)| a < b);
    let candidates = by_name.into_values();
    let steps = candidates.filter(|marks| marks.len() >= FEWEST && increase(marks));
    let most = steps.max_by_key(Vec::len)?;
    Some(most.into_iter().map(|(_, event)| event).collect())
}

/// The events at which optimizer steps begin; of several optimizers, those of the first.
fn updates(log: &Log) -> Option<Vec<u64>> {
    let first = log.marks.iter().find(|mark| is_update(&mark.tag))?;
    let same = log.marks.iter().filter(|mark| mark.tag == first.tag);
    let begins: Vec<u64> = same.map(|mark| mark.event).collect();
    (begins.len() >= FEWEST).then_some(begins)
}

/// Whether a phase is an optimizer step: `optimizer`, `Optimizer.step#AdamW.step`.
#[must_use]
pub fn is_update(tag: &str) -> bool {
    let tag = tag.to_ascii_lowercase();
    tag.starts_with("optimizer") && !tag.contains("zero_grad")
}

/// The events of the requests that begin the steps, if requests repeat.
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
    let kinds = allocations.map(|(at, a)| {
        let next = numbers.len();
        *numbers.entry((what(at, a), a.stream)).or_insert(next)
    });
    let kinds = kinds.collect();
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
    use coalesce_workloads::families::program::Program;

    use super::super::Evidence;
    use super::super::testing::{MIB, ROOMY, burst, hold};
    use super::*;

    fn steps(program: impl Fn(&mut Program<'_>) + Send + Sync) -> Option<Steps> {
        ROOMY.gather(program, |evidence: &Evidence<'_>| evidence.steps.clone())
    }

    #[test]
    fn numbered_marks_take_precedence() {
        let found = steps(|program| {
            hold(program, 1, MIB);
            for step in 5..9 {
                program.mark(&format!("ProfilerStep#{step}"));
                burst(program, 1, MIB);
                program.mark("optimizer");
            }
        });
        let found = found.unwrap();
        assert_eq!(found.source, StepSource::Marked);
        assert_eq!(
            found.events,
            [1..5, 5..9, 9..13, 13..17],
            "the mark `end` belongs to no step"
        );
        assert_eq!(found.warm().len(), 2);
    }

    #[test]
    fn optimizer_steps_are_used_without_numbered_marks() {
        let found = steps(|program| {
            for _ in 0..4 {
                burst(program, 1, MIB);
                program.mark("Optimizer.step#AdamW.step");
            }
        });
        let found = found.unwrap();
        assert_eq!(found.source, StepSource::Updates);
        assert_eq!(found.events, [2..5, 5..8, 8..11, 11..12]);
    }

    #[test]
    fn repeated_requests_begin_a_step_where_least_is_live() {
        let found = steps(|program| {
            hold(program, 7, 5 * MIB);
            for _ in 0..5 {
                let first = program.alloc(MIB, "several");
                (2..12).for_each(|n| program.scratch(n * MIB, "several"));
                program.free(first);
            }
        });
        let found = found.unwrap();
        assert_eq!(found.source, StepSource::Periodic);
        // Seven tensors that stay, and eleven requests and frees per step.
        assert_eq!(found.events, [7..29, 29..51, 51..73, 73..95]);
    }

    #[test]
    fn nothing_repeats() {
        let found = steps(|program| (0..200).for_each(|n| program.scratch(n * n * 512, "")));
        assert_eq!(found, None);
        let found = steps(|program| {
            ["step 3", "step 2", "step 1"]
                .into_iter()
                .for_each(|tag| program.mark(tag))
        });
        assert_eq!(found, None, "decreasing numbers");
    }
}
