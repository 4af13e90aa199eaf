//! What the planner makes of a program known in advance: iterations, phases, and what kind of tensor
//! each request is.
//!
//! As the original profiles three iterations, requests of later ones are not looked at; they are
//! expected to repeat the second.

use std::collections::BTreeMap;

use crate::lifetimes::{Lifetimes, TimedRequest};
use crate::placement::{self, Buffer};
use crate::policy::planned::UNIT;

use super::layers::Tensor;
use super::time::{Life, Period};

/// Requests of fewer bytes are not planned.
pub(super) const LEAST: u64 = 513;
/// Iterations that are profiled. After them comes the tail.
const PROFILED: u32 = 3;

/// When in the program something happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Iteration {
    /// Before the first.
    Head,
    /// In one of those that are profiled.
    Nth(u32),
    /// After them.
    Tail,
}

/// Where in an iteration something happens: a phase is the way through the model and back of one
/// micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// Before the first micro-batch.
    Initial,
    /// The forward pass of so many a micro-batch, counted from 0 in each iteration.
    Forward(u32),
    /// The backward pass, and what follows it.
    Backward(u32),
}

/// What kind of tensor a request is, by where its life begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// There from before the first iteration until after the last: weights.
    Weights,
    /// There from the first iteration until after the last: the optimiser's state.
    State,
    /// There only before the first iteration.
    Initial,
    /// There from before the first iteration until during one, or of another size in each iteration:
    /// not planned.
    Unplanned,
    /// All others.
    Activation,
}

/// A moment of the program.
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

/// The course of a program, as its marks tell it: `step …` begins an iteration, `forward` and
/// `backward` a phase, `end` the tail. Without steps it is one iteration.
#[derive(Debug)]
struct Course {
    /// Each with its first event, in order.
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

    /// Where in the program an event is.
    fn at(&self, event: u64) -> Moment {
        let next = self.turns.partition_point(|&(at, _)| at <= event);
        // The first turn is at 0.
        self.turns[next.saturating_sub(1)].1
    }
}

impl Kind {
    /// The kind of what is asked for and given back in these iterations.
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

/// A request that is looked at.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tensor: Tensor,
    from: Moment,
    until: Moment,
    kind: Kind,
}

impl Entry {
    /// Whether it is of the iterations for which there is a plan.
    fn is_planned(&self) -> bool {
        self.from.iteration <= Iteration::Nth(1)
    }

    fn crosses_phases(&self) -> bool {
        self.from.phase != self.until.phase
    }
}

/// Takes out what is *dynamic*: activations that have not the same size in the second and the third
/// iteration. One is known in another iteration by its number among the activations there.
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

/// A program, as it is planned.
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

    /// All requests for which there is a step in the plan, by position.
    pub(super) fn steps(&self) -> impl Iterator<Item = usize> {
        let planned = self.entries.iter().filter(|entry| entry.is_planned());
        planned.map(|entry| entry.tensor.request)
    }

    /// The step with which the second iteration begins, if there is one.
    pub(super) fn second_iteration(&self) -> Option<usize> {
        let is_second = |entry: &Entry| entry.from.iteration == Iteration::Nth(1);
        self.entries.iter().position(is_second)
    }

    /// The tensors of a kind for which there is a plan.
    pub(super) fn tensors(&self, kind: Kind) -> Vec<Tensor> {
        let planned = self.entries.iter().filter(|entry| entry.is_planned());
        let of_kind = planned.filter(|entry| entry.kind == kind);
        of_kind.map(|entry| entry.tensor).collect()
    }

    /// The most bytes of tensors that are planned, or would be if their iteration were.
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

    /// The activations that are in another phase at the end of their life than at its beginning, by
    /// iteration and phases.
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

    /// All other activations.
    pub(super) fn staying(&self) -> Vec<Tensor> {
        let staying = self.activations().filter(|entry| !entry.crosses_phases());
        staying.map(|entry| entry.tensor).collect()
    }

    /// The second iteration, as it is told by all activations, or by those alone that stay in a phase.
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
