//! The remedies worth trying in a program, from its phases and from what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::ops::Range;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::pytorch::size::{MIN_BLOCK, SMALL_LIMIT};
use coalesce_alloc::{MempoolId, PoolCall};
use coalesce_workloads::formats::snapshot::{Frame, Stack};
use coalesce_workloads::op::{Answer, Op};

use super::order::{self, Lasting};
use super::remedy::{Act, Remedy, Times};
use crate::diagnose::Evidence;
use crate::diagnose::log::Allocation;
use crate::holders::Holders;
use crate::phases::{Phase, ProgramLine, phases};

/// A phase is repeated if it comes this often.
const OFTEN: u64 = 8;
/// The most lines whose tensors are given a pool.
const LINES: usize = 4;
/// Tensors of a line matter if they are this part of the peak.
const PART: u64 = 20;

/// What the program could do in its phases.
#[derive(Clone, Debug, Default)]
pub(in crate::advise) struct Candidates {
    pub phases: Vec<Phase>,
    /// Remedies apart from other settings.
    pub remedies: Vec<Remedy>,
    /// Tensors that stay to the end, and could be created first.
    pub lasting: Vec<Lasting>,
}

/// What serves a request: the stream, and the private pool that the program uses.
type Home = (u32, MempoolId);

impl Candidates {
    /// The candidates of a program, as far as its replay shows it.
    pub fn of(evidence: &Evidence<'_>, holders: &Holders<'_>) -> Self {
        let phases = phases(evidence);
        let homes = homes(evidence);
        let is_in_pool = |request: usize| {
            let home = homes.get(request);
            home.is_none_or(|(_, pool)| *pool != MempoolId::DEFAULT)
        };
        let has_pools = homes.iter().any(|(_, pool)| *pool != MempoolId::DEFAULT);
        let mut remedies = primes(evidence, &phases, &homes);
        remedies.extend(phases.iter().flat_map(emptied));
        if !has_pools {
            let pools = in_pools(evidence, &phases);
            remedies.extend(pools.flat_map(|phase| {
                let pool = |no_split| remedy(&phase, Act::Pool { no_split }, Times::Every(1));
                [false, true].map(pool)
            }));
        }
        Self {
            lasting: order::lasting(evidence, holders, is_in_pool),
            phases,
            remedies,
        }
    }

    /// Remedies that change the settings from `base` to one of `confs`: in one phase, from one on, or up to it.
    pub fn settings(&self, base: &str, confs: &[String]) -> Vec<Remedy> {
        let change = |phase: &Phase, conf: &String, comes_back: bool| {
            let then = comes_back.then(|| super::remedy::back(conf, base));
            let conf = conf.clone();
            let times = if comes_back {
                Times::Every(1)
            } else {
                Times::First
            };
            remedy(phase, Act::Settings { conf, then }, times)
        };
        let all = self.phases.iter().filter(|_| self.phases.len() > 1);
        let each = all.flat_map(|phase| {
            let begins_later = phase.times.first().is_some_and(|first| first.start > 0);
            let during = confs.iter().map(move |conf| change(phase, conf, true));
            let from = confs.iter().filter(move |_| begins_later);
            during.chain(from.map(move |conf| change(phase, conf, false)))
        });
        each.collect()
    }
}

fn remedy(phase: &Phase, act: Act, times: Times) -> Remedy {
    Remedy {
        act,
        phase: phase.name.clone(),
        at: phase.line.clone(),
        times,
        requests: phase.times.clone(),
    }
}

/// Returns of cached memory after a phase: each time, the first time, or every so many times.
fn emptied(phase: &Phase) -> Vec<Remedy> {
    let count = phase.times.len() as u64;
    let mut times = vec![Times::Every(1)];
    if count > 1 {
        times.push(Times::First);
    }
    times.extend(
        [4, 16]
            .into_iter()
            .filter(|n| count >= OFTEN.max(2 * n))
            .map(Times::Every),
    );
    times
        .into_iter()
        .map(|times| remedy(phase, Act::EmptyCache, times))
        .collect()
}

/// The homes of all requests.
fn homes(evidence: &Evidence<'_>) -> Vec<Home> {
    let (mut homes, mut pools) = (Vec::new(), Vec::new());
    // Whatever could be read for the replay is read again. Without it, nothing is known of pools.
    _ = evidence.subject.workload.emit(&mut |op: Op<'_>| {
        match op {
            Op::Malloc { stream, .. } => {
                homes.push((stream, pools.last().copied().unwrap_or(MempoolId::DEFAULT)));
            }
            Op::Pool(PoolCall::Begin(pool)) => pools.push(pool),
            Op::Pool(PoolCall::End(ended)) => pools.retain(|pool| *pool != ended),
            _ => {}
        }
        Ok(Answer::Done)
    });
    homes
}

/// Blocks to request and free at the start, before a phase, or before the first request of a stream or of a private pool:
/// as large as what is held there at its peak, a little more, or the largest request.
fn primes(evidence: &Evidence<'_>, phases: &[Phase], homes: &[Home]) -> Vec<Remedy> {
    // A program that was running when its recording began did what it did before.
    let start = evidence.subject.workload.start();
    let before = start.map_or(0, |start| start.live());
    let mut first: BTreeMap<Home, usize> = BTreeMap::new();
    for (request, &home) in homes.iter().enumerate() {
        first.entry(home).or_insert(request);
    }
    let of = |home: Home| {
        evidence.allocations().filter(move |&(index, allocation)| {
            allocation.bytes > SMALL_LIMIT && homes.get(index) == Some(&home)
        })
    };
    let of_phase = |home, phase: &Phase| {
        peak(of(home).filter(|&(index, _)| {
            let ended = phase.times.partition_point(|time| time.end <= index as u64);
            let time = phase.times.get(ended);
            time.is_some_and(|time| time.contains(&(index as u64)))
        }))
    };
    let mut places: Vec<(Phase, Home, Vec<u64>)> = Vec::new();
    for (&home, &request) in first.iter().filter(|(_, request)| **request >= before) {
        let peak_of_all = peak(of(home));
        let largest = of(home).map(|(_, a)| a.bytes).max().unwrap_or(0);
        let mut sizes = vec![
            peak_of_all,
            peak_of_all + peak_of_all / 50,
            peak_of_all + peak_of_all / 20,
            largest,
        ];
        sizes.extend(phases.iter().map(|phase| of_phase(home, phase)));
        places.push((requester(evidence, request, phases), home, sizes));
    }
    for phase in phases {
        let begin = phase
            .times
            .first()
            .and_then(|time| usize::try_from(time.start).ok());
        let home = begin
            .filter(|begin| *begin > before)
            .and_then(|begin| homes.get(begin));
        if let Some(&home) = home {
            places.push((phase.clone(), home, vec![of_phase(home, phase)]));
        }
    }
    let each = places.into_iter().flat_map(|(phase, (stream, _), sizes)| {
        let sizes = sizes.into_iter();
        let sizes = sizes.map(|size| size.next_multiple_of(GRANULARITY));
        let sizes: BTreeSet<u64> = sizes.filter(|size| *size > GRANULARITY).collect();
        let sizes = sizes.into_iter();
        sizes.map(move |bytes| remedy(&phase, Act::Prime { bytes, stream }, Times::First))
    });
    each.collect()
}

/// The most bytes of some allocations that are live at a time.
fn peak<'l>(allocations: impl Iterator<Item = (usize, &'l Allocation)>) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (_, allocation) in allocations.filter(|(_, a)| !a.failed) {
        let bytes = allocation.bytes.next_multiple_of(MIN_BLOCK).cast_signed();
        changes.push((allocation.born, bytes));
        changes.push((allocation.freed, -bytes));
    }
    changes.sort_unstable();
    let (mut live, mut most) = (0_i64, 0);
    for (_, change) in changes {
        live = live.saturating_add(change);
        most = most.max(live);
    }
    most.unsigned_abs()
}

/// Who makes a request: the phase that it begins, or else the line of the program that is to blame.
fn requester(evidence: &Evidence<'_>, request: usize, phases: &[Phase]) -> Phase {
    let at = request as u64;
    let begins = |phase: &&Phase| phase.times.first().is_some_and(|time| time.start == at);
    let (name, line) = match (phases.iter().find(begins), blamed(evidence, request)) {
        (Some(phase), _) => (phase.name.clone(), phase.line.clone()),
        (None, Some(line)) => (line.place(), Some(line)),
        (None, None) => ("the first request".to_owned(), None),
    };
    let times = once(at..at + 1).collect();
    Phase { name, line, times }
}

/// The line of the program that is to blame for a request.
fn blamed(evidence: &Evidence<'_>, request: usize) -> Option<ProgramLine> {
    evidence.stack(request)?.blamed().map(ProgramLine::of)
}

/// Phases and lines that could have a pool of their own: lines whose tensors live for long, and phases in which each request
/// has a stack. (The threads of a backward pass have none, and do not use a pool of the thread that calls it.)
fn in_pools<'e>(
    evidence: &'e Evidence<'_>,
    phases: &'e [Phase],
) -> impl Iterator<Item = Phase> + 'e {
    let has_stacks = evidence.subject.recording.is_some();
    let is_of_thread = move |request: u64| {
        let index = usize::try_from(request).unwrap_or(usize::MAX);
        !has_stacks || !evidence.stacks.path(index).is_empty()
    };
    let whole = phases
        .iter()
        .filter(move |phase| phase.times.iter().cloned().flatten().all(is_of_thread));
    whole.cloned().chain(lines_of_long_lived(evidence))
}

/// The lines whose tensors live for at least half of the program, with all times that they are executed.
fn lines_of_long_lived(evidence: &Evidence<'_>) -> Vec<Phase> {
    let half = evidence.log.end() / 2;
    let mut bytes: BTreeMap<ProgramLine, u64> = BTreeMap::new();
    for (index, allocation) in evidence.allocations() {
        let end = allocation.freed.min(evidence.log.end());
        if allocation.bytes > SMALL_LIMIT
            && end - allocation.born.min(end) >= half
            && let Some(line) = blamed(evidence, index)
        {
            *bytes.entry(line).or_default() += allocation.bytes;
        }
    }
    let least = evidence.measures.peak_requested_bytes / PART;
    let mut lines: Vec<(u64, ProgramLine)> = bytes
        .into_iter()
        .map(|(line, bytes)| (bytes, line))
        .collect();
    lines.sort_unstable_by(|a, b| b.cmp(a));
    let lines = lines
        .into_iter()
        .filter(|(bytes, _)| *bytes >= least)
        .take(LINES);
    let places = lines.map(|(_, line)| Phase {
        name: line.place(),
        times: executions(evidence, &line),
        line: Some(line),
    });
    places.collect()
}

/// The requests that are made while a line is executed.
fn executions(evidence: &Evidence<'_>, line: &ProgramLine) -> Vec<Range<u64>> {
    let recording = evidence.subject.recording;
    let stacks = recording.map_or(&[][..], |recording| &recording.stacks);
    let is_line = |frame: &Frame| {
        (&frame.filename, frame.line, &frame.name) == (&line.file, line.line, &line.function)
    };
    let passes = |stack: &Stack| stack.frames.iter().any(|frame| is_line(frame));
    let passes: Vec<bool> = stacks.iter().map(passes).collect();
    let mut times: Vec<Range<u64>> = Vec::new();
    for (index, _) in evidence.allocations() {
        let stack = evidence.stack_of(index);
        if stack.is_some_and(|id| passes.get(id.0 as usize) == Some(&true)) {
            let request = index as u64;
            match times.last_mut().filter(|last| last.end == request) {
                Some(last) => last.end += 1,
                None => times.push(request..request + 1),
            }
        }
    }
    times
}
