//! The steps of a program: what it does again and again.
//!
//! The first of these that shows at least [`FEWEST`]:
//! 1. marks with a number that grows: `step 3`, `ProfilerStep#3`;
//! 2. marks of the optimizer: a step lasts from one update to the next;
//! 3. requests that repeat. Who asks counts if that is known, otherwise how much is asked for. The period
//!    is the shortest after which [`ALIKE`] of the requests in the second half of the program come again;
//!    a step begins where least is live.
//!
//! If there is none, there are no steps, and whoever needs them is silent.

use std::collections::BTreeMap;
use std::ops::Range;

use super::log::{Allocation, Log, Mark};

/// Fewer are no repetition.
pub const FEWEST: usize = 3;
/// How many of the requests, in percent, must come again after a period. Data decide on some requests
/// of most programs, so not all.
const ALIKE: usize = 95;
/// Periods of fewer requests are loops within a step.
const SHORTEST_PERIOD: usize = 8;
/// How many rare requests are looked at to find out how far apart they are, and how many of the
/// distances are tried. Many more would cost time and find nothing: what a step does once is rare.
const RARE: usize = 64;
const DISTANCES: usize = 32;

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
    /// allocation, as a number; nobody knows if all are the same.
    #[must_use]
    pub fn find(log: &Log, sites: &[u32]) -> Option<Self> {
        let marked = || numbered(log).map(|begins| Self::between(Found::Marked, &begins, log));
        let updates = || updates(log).map(|begins| Self::between(Found::Updates, &begins, log));
        let periodic = || periodic(log, sites).map(|begins| Self::upto_last(&begins));
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

/// The events with which updates begin.
fn updates(log: &Log) -> Option<Vec<u64>> {
    let mut begins: Vec<u64> = Vec::new();
    let mut is_in_update = false;
    for mark in &log.marks {
        let was_in_update = std::mem::replace(&mut is_in_update, is_update(&mark.tag));
        if is_in_update && !was_in_update {
            begins.push(mark.event);
        }
    }
    (begins.len() >= FEWEST).then_some(begins)
}

/// Whether a phase is that of the optimizer: `optimizer`, `Optimizer.step#AdamW.step`.
#[must_use]
pub fn is_update(tag: &str) -> bool {
    let tag = tag.to_ascii_lowercase();
    tag.starts_with("optimizer") && !tag.contains("zero_grad")
}

/// The events of the requests with which periods begin.
fn periodic(log: &Log, sites: &[u32]) -> Option<Vec<u64>> {
    let is_known = sites.iter().any(|site| Some(site) != sites.first());
    let by_size = |a: &Allocation| a.bytes ^ u64::from(a.stream).rotate_left(48);
    let symbols: Vec<u64> = match is_known {
        true => sites.iter().copied().map(u64::from).collect(),
        false => log.allocations.iter().map(by_size).collect(),
    };
    let half = symbols.len() / 2;
    let is_period = |&period: &usize| {
        let repeats =
            (half..symbols.len()).filter(|&at| symbols.get(at) == symbols.get(at - period));
        repeats.count() * 100 >= (symbols.len() - half) * ALIKE
    };
    let mut distances = distances(&symbols);
    distances.retain(|&distance| {
        distance >= SHORTEST_PERIOD && distance <= half && distance * (FEWEST + 1) <= symbols.len()
    });
    distances.sort_unstable();
    let period = distances.into_iter().find(is_period)?;
    // The program may have begun otherwise: periods are counted from its end.
    let repeats = |places: Range<usize>| {
        let alike = |&at: &usize| symbols.get(at) == symbols.get(at + period);
        places.filter(alike).count() * 100 >= period * ALIKE
    };
    let mut start = symbols.len() - period;
    while let Some(earlier) = start.checked_sub(period)
        && repeats(earlier..start)
    {
        start = earlier;
    }
    let live_before = |at: usize| {
        let born = log.allocations.get(at).map_or(0, |a| a.born);
        born.checked_sub(1)
            .map_or(0, |event| log.level(event).requested)
    };
    let rounds = |offset: usize| (start + offset..symbols.len()).step_by(period);
    let quietest = (0..period).min_by_key(|&offset| {
        let live = rounds(offset).skip(1).map(live_before);
        live.map(u128::from).sum::<u128>()
    })?;
    let begins = rounds(quietest).filter_map(|at| log.allocations.get(at));
    let begins: Vec<u64> = begins.map(|a| a.born).collect();
    (begins.len() > FEWEST).then_some(begins)
}

/// How far apart the same rare request is made again: the most common distances.
fn distances(symbols: &[u64]) -> Vec<usize> {
    let mut places: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, &symbol) in symbols.iter().enumerate() {
        places.entry(symbol).or_default().push(at);
    }
    let mut rare: Vec<Vec<usize>> = places.into_values().filter(|p| p.len() >= FEWEST).collect();
    rare.sort_by_key(Vec::len);
    rare.truncate(RARE);
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for places in rare {
        for (here, next) in places.iter().zip(places.iter().skip(1)) {
            *counts.entry(next - here).or_default() += 1;
        }
    }
    let mut common: Vec<(usize, usize)> = counts.into_iter().map(|(d, n)| (n, d)).collect();
    common.sort_unstable_by(|a, b| b.cmp(a));
    common.truncate(DISTANCES);
    common.into_iter().map(|(_, distance)| distance).collect()
}
