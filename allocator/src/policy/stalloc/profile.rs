//! The profile of a workload: iterations, phases and the kind of tensor of each request.
//!
//! The original profiles three iterations, so later requests are ignored. They are expected to repeat the
//! second iteration.

use std::collections::BTreeMap;

use crate::lifetimes::{Lifetimes, TimedRequest};
use crate::placement::{self, Buffer};
use crate::policy::planned::UNIT;

use super::layers::Tensor;
use super::time::{Life, Period};

/// Requests of fewer bytes are not planned.
pub(super) const LEAST: u64 = 513;
/// Iterations that are profiled. The tail follows.
const PROFILED: u32 = 3;

/// The iteration that an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Iteration {
    /// Before the first iteration.
    Head,
    /// One of the profiled iterations.
    Nth(u32),
    /// After the profiled iterations.
    Tail,
}

/// The phase of an iteration that an event belongs to: the forward or backward pass of one micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// Before the first micro-batch.
    Initial,
    /// The forward pass of a micro-batch, numbered from 0 in each iteration.
    Forward(u32),
    /// The backward pass of a micro-batch, and what follows it.
    Backward(u32),
}

/// The kind of tensor of a request, by where its life begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Lives from before the first iteration until after the last: weights.
    Weights,
    /// Lives from the first iteration until after the last: optimizer state.
    State,
    /// Lives only before the first iteration.
    Initial,
    /// Not planned: lives from before the first iteration into one, or changes its size between
    /// iterations.
    Unplanned,
    /// All other tensors.
    Activation,
}

/// The iteration and phase of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moment {
    iteration: Iteration,
    phase: Phase,
}

impl Moment {
    const TAIL: Self = Self {
        iteration: Iteration::Tail,
        phase: Phase::Initial,
    };
}

/// Iterations and phases of a workload, from its marks: `step …` begins an iteration, `forward` and
/// `backward` a phase, `end` the tail. A workload without steps is one iteration.
#[derive(Debug)]
struct Course {
    /// Moments with their first events, in order.
    turns: Vec<(u64, Moment)>,
}

impl Course {
    fn of(lifetimes: &Lifetimes) -> Self {
        let is_step = |tag: &str| tag.starts_with("step ");
        let has_steps = lifetimes.marks.iter().any(|mark| is_step(&mark.tag));
        let mut now = Moment {
            iteration: if has_steps {
                Iteration::Head
            } else {
                Iteration::Nth(0)
            },
            phase: Phase::Initial,
        };
        let mut turns = vec![(0, now)];
        let (mut steps, mut forward, mut backward) = (0, 0, 0);
        for mark in &lifetimes.marks {
            let in_iteration = matches!(now.iteration, Iteration::Nth(_));
            match mark.tag.as_str() {
                tag if is_step(tag) && steps < PROFILED => {
                    now.iteration = Iteration::Nth(steps);
                    now.phase = Phase::Initial;
                    (steps, forward, backward) = (steps + 1, 0, 0);
                }
                tag if is_step(tag) || tag == "end" => {
                    now = Moment::TAIL;
                }
                "forward" if in_iteration => {
                    now.phase = Phase::Forward(forward);
                    forward += 1;
                }
                "backward" if in_iteration => {
                    now.phase = Phase::Backward(backward);
                    backward += 1;
                }
                _ => continue,
            }
            turns.push((mark.at, now));
        }
        turns.push((lifetimes.events, Moment::TAIL));
        Self { turns }
    }

    /// Returns the moment of an event.
    fn at(&self, event: u64) -> Moment {
        let next = self.turns.partition_point(|&(at, _)| at <= event);
        // The first turn is at 0.
        self.turns[next.saturating_sub(1)].1
    }
}

impl Kind {
    /// The kind of a tensor that is allocated and freed in these iterations.
    fn of(from: Iteration, until: Iteration) -> Self {
        match (from, until) {
            (Iteration::Head, Iteration::Tail) => Self::Weights,
            (Iteration::Head, Iteration::Head) => Self::Initial,
            (Iteration::Head, Iteration::Nth(_)) => Self::Unplanned,
            (Iteration::Nth(0), Iteration::Tail) => Self::State,
            _ => Self::Activation,
        }
    }
}

/// A profiled request.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tensor: Tensor,
    from: Moment,
    until: Moment,
    kind: Kind,
}

impl Entry {
    /// Whether it belongs to a planned iteration: the first two, or before.
    fn is_planned(&self) -> bool {
        self.from.iteration <= Iteration::Nth(1)
    }

    fn crosses_phases(&self) -> bool {
        self.from.phase != self.until.phase
    }
}

/// Excludes *dynamic* activations, whose size differs between the second and the third iteration.
/// Activations of different iterations correspond by their number in the iteration.
fn set_dynamic_apart(entries: &mut [Entry]) {
    let activations = |nth: u32| -> Vec<usize> {
        let is_activation = |entry: &Entry| {
            entry.kind == Kind::Activation && entry.from.iteration == Iteration::Nth(nth)
        };
        let indices = 0..entries.len();
        indices
            .filter(|&index| is_activation(&entries[index]))
            .collect()
    };
    let [first, second, third] = [0, 1, 2].map(activations);
    let is_first_alike = first.len() == second.len();
    for (number, (&one, &other)) in second.iter().zip(&third).enumerate() {
        if entries[one].tensor.bytes != entries[other].tensor.bytes {
            entries[one].kind = Kind::Unplanned;
            if is_first_alike {
                entries[first[number]].kind = Kind::Unplanned;
            }
        }
    }
}

/// The profiled requests of a workload.
#[derive(Debug)]
pub(super) struct Profile {
    /// In the order of the requests.
    entries: Vec<Entry>,
}

impl Profile {
    pub(super) fn of(lifetimes: &Lifetimes) -> Self {
        let course = Course::of(lifetimes);
        let requests = lifetimes.requests.iter().enumerate();
        let large = requests.filter(|(_, request)| request.bytes >= LEAST);
        let entry = |(index, request): (usize, &TimedRequest)| {
            let (from, until) = (course.at(request.from), course.at(request.until));
            Entry {
                tensor: Tensor {
                    request: index,
                    bytes: request.bytes.next_multiple_of(UNIT),
                    life: Life {
                        from: request.from,
                        until: request.until,
                    },
                },
                from,
                until,
                kind: Kind::of(from.iteration, until.iteration),
            }
        };
        let profiled = |entry: &Entry| entry.from.iteration < Iteration::Tail;
        let mut entries: Vec<Entry> = large.map(entry).filter(profiled).collect();
        set_dynamic_apart(&mut entries);
        Self { entries }
    }

    /// Returns the indexes of the requests that have a step in the plan.
    pub(super) fn steps(&self) -> impl Iterator<Item = usize> {
        let planned = self.entries.iter().filter(|entry| entry.is_planned());
        planned.map(|entry| entry.tensor.request)
    }

    /// Returns the first step of the second iteration, if there is one.
    pub(super) fn second_iteration(&self) -> Option<usize> {
        let is_second = |entry: &Entry| entry.from.iteration == Iteration::Nth(1);
        self.entries.iter().position(is_second)
    }

    /// Returns the planned tensors of a kind.
    pub(super) fn tensors(&self, kind: Kind) -> Vec<Tensor> {
        let planned = self.entries.iter().filter(|entry| entry.is_planned());
        let of_kind = planned.filter(|entry| entry.kind == kind);
        of_kind.map(|entry| entry.tensor).collect()
    }

    /// Returns the peak of all tensors except unplanned ones, in bytes.
    pub(super) fn peak(&self) -> u64 {
        let entries = self.entries.iter();
        let planned = entries.filter(|entry| entry.kind != Kind::Unplanned);
        let buffers = planned.map(|Entry { tensor, .. }| Buffer {
            lower: tensor.life.from,
            upper: tensor.life.until,
            size: tensor.bytes,
        });
        placement::lower_bound(&buffers.collect::<Vec<_>>())
    }

    fn activations(&self) -> impl Iterator<Item = &Entry> {
        let of_kind = |entry: &&Entry| entry.kind == Kind::Activation && entry.is_planned();
        self.entries.iter().filter(of_kind)
    }

    /// Returns the activations that are freed in another phase than they are allocated in, by iteration
    /// and phases.
    pub(super) fn crossing(&self) -> Vec<Vec<Tensor>> {
        let mut groups: BTreeMap<_, Vec<Tensor>> = BTreeMap::new();
        for entry in self.activations().filter(|entry| entry.crosses_phases()) {
            let phases = (entry.from.iteration, entry.from.phase, entry.until.phase);
            groups.entry(phases).or_default().push(entry.tensor);
        }
        let mut groups: Vec<Vec<Tensor>> = groups.into_values().collect();
        groups.sort_by_key(|group| group.first().map(|tensor| tensor.life.from));
        groups
    }

    /// Returns all other activations.
    pub(super) fn staying(&self) -> Vec<Tensor> {
        let staying = self.activations().filter(|entry| !entry.crosses_phases());
        staying.map(|entry| entry.tensor).collect()
    }

    /// Returns the second iteration, as defined by all activations or only by those within a phase.
    pub(super) fn period(&self, staying_only: bool) -> Period {
        let told = |entry: &&Entry| !(staying_only && entry.crosses_phases());
        let second = Iteration::Nth(1);
        let begin =
            |entry: &Entry| (entry.from.iteration == second).then_some(entry.tensor.life.from);
        let end =
            |entry: &Entry| (entry.until.iteration == second).then_some(entry.tensor.life.until);
        let start = self.activations().filter(told).filter_map(begin).min();
        let end = self.activations().filter(told).filter_map(end).max();
        let horizon = self
            .activations()
            .map(|entry| entry.tensor.life.until)
            .max();
        Period {
            start,
            length: end.unwrap_or(0).saturating_sub(start.unwrap_or(0)),
            horizon: horizon.unwrap_or(0),
        }
    }
}
