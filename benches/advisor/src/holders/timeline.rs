//! Decides what each allocation is for, from what the program was doing at its birth and at its end.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::category::Category;
use super::role::Role;
use super::{shape, sizes};
use crate::diagnose::Evidence;
use crate::diagnose::log::Allocation;
use crate::diagnose::steps::is_update;

/// The roles of all allocations, and the optimizer's steps.
pub(super) struct Timeline<'a> {
    evidence: &'a Evidence<'a>,
    /// The role of each allocation.
    roles: Vec<Role>,
    /// The indices at which runs of allocations with one role begin.
    runs: Vec<usize>,
    /// The events of each step of the optimizer, in order.
    updates: Vec<Range<u64>>,
    /// The allocations that cuBLAS keeps as its workspace.
    workspaces: HashSet<usize>,
    /// The categories that the sizes of gradients show.
    by_size: HashMap<usize, Category>,
}

impl<'a> Timeline<'a> {
    pub(super) fn of(evidence: &'a Evidence<'a>) -> Self {
        let mut roles = roles(evidence);
        let mut updates = updates(evidence, &roles);
        if roles
            .iter()
            .all(|role| matches!(role, Role::Unknown | Role::Program))
        {
            roles = shape::roles(&evidence.log, &updates);
            updates.retain(|update| update.start < evidence.log.end());
        }
        let mut timeline = Self {
            evidence,
            workspaces: workspaces(evidence, &roles),
            runs: runs(&roles),
            roles,
            updates,
            by_size: HashMap::new(),
        };
        timeline.by_size = timeline.by_size();
        timeline
    }

    /// The categories that the sizes of gradients show.
    fn by_size(&self) -> HashMap<usize, Category> {
        let mut gradients = vec![Vec::new(); self.updates.len()];
        let mut state = BTreeSet::new();
        let mut candidates = Vec::new();
        for (index, allocation) in self.evidence.allocations() {
            match self.category(index) {
                Category::Gradients => {
                    let update = self.updates.partition_point(|u| u.start <= allocation.born);
                    if let Some(sizes) = gradients.get_mut(update) {
                        sizes.push(allocation.bytes);
                    }
                }
                Category::OptimizerState => _ = state.insert(allocation.bytes),
                Category::Unknown if self.may_be_parameter(index, allocation) => {
                    candidates.push((index, allocation.bytes));
                }
                _ => {}
            }
        }
        sizes::categories(&candidates, &gradients, &state)
    }

    /// Whether an allocation without a stack lives through the first step of the optimizer and was there before.
    fn may_be_parameter(&self, index: usize, allocation: &Allocation) -> bool {
        let first = self.updates.first();
        self.role(index) == Role::Unknown
            && first
                .is_some_and(|first| allocation.born < first.start && first.end <= allocation.freed)
    }

    fn role(&self, allocation: usize) -> Role {
        self.roles.get(allocation).copied().unwrap_or_default()
    }

    /// The first step of the optimizer that begins after an event.
    fn next_update(&self, event: u64) -> Option<&Range<u64>> {
        let next = self.updates.partition_point(|update| update.start <= event);
        self.updates.get(next)
    }

    /// Whether a backward pass runs at an event.
    fn is_backward(&self, event: u64) -> bool {
        let after = self.evidence.log.index_from(event);
        let is_backward =
            |index: usize| matches!(self.role(index), Role::Backward | Role::Recompute);
        is_backward(after) || after.checked_sub(1).is_some_and(is_backward)
    }

    /// The number of steps of the optimizer that begin while an allocation is live.
    fn updates_outlived(&self, allocation: &Allocation) -> usize {
        let before = |event: u64| self.updates.partition_point(|update| update.start <= event);
        before(allocation.freed).saturating_sub(before(allocation.born))
    }

    /// The allocations with the role of this one around it, without others between.
    fn run_of(&self, index: usize) -> Range<usize> {
        let next = self.runs.partition_point(|&start| start <= index);
        let start = next.checked_sub(1).and_then(|run| self.runs.get(run));
        let end = self.runs.get(next).copied();
        start.copied().unwrap_or(0)..end.unwrap_or(self.roles.len())
    }

    /// The event at which the run of an allocation ends.
    fn end_of_run(&self, index: usize) -> u64 {
        let next = self.run_of(index).end;
        let next = self.evidence.log.allocations.get(next);
        next.map_or(u64::MAX, |next| next.born)
    }

    /// What an allocation is for.
    pub(super) fn category(&self, index: usize) -> Category {
        let Some(allocation) = self.evidence.log.allocations.get(index) else {
            return Category::Unknown;
        };
        if self.workspaces.contains(&index) {
            return Category::Workspace;
        }
        match self.role(index) {
            Role::Workspace => Category::Workspace,
            Role::Gather => Category::Parameters,
            Role::Reduce => Category::Gradients,
            Role::Recompute => Category::Activations,
            Role::Data => Category::Inputs,
            Role::Optimizer => self.of_optimizer(allocation),
            Role::Backward => self.of_backward(allocation),
            Role::Setup => {
                if allocation.freed < self.end_of_run(index) {
                    Category::Temporaries
                } else {
                    Category::Parameters
                }
            }
            Role::Init => {
                if allocation.freed == u64::MAX {
                    Category::Parameters
                } else {
                    Category::Unknown
                }
            }
            Role::Forward => match self.updates_outlived(allocation) {
                0 | 1 => Category::Activations,
                _ => Category::Unknown,
            },
            Role::Program => self.of_program(index, allocation),
            Role::Rise => match self.next_update(allocation.born) {
                Some(update) if allocation.freed < update.start => Category::Activations,
                _ => Category::Unknown,
            },
            Role::Unknown => {
                let shown = self.by_size.get(&index).copied();
                shown.unwrap_or(Category::Unknown)
            }
        }
    }

    fn of_optimizer(&self, allocation: &Allocation) -> Category {
        let after = self
            .updates
            .partition_point(|update| update.start <= allocation.born);
        let update = after
            .checked_sub(1)
            .and_then(|index| self.updates.get(index));
        match update {
            Some(update) if update.end == u64::MAX && allocation.freed == u64::MAX => {
                Category::Unknown
            }
            Some(update) if allocation.freed >= update.end => Category::OptimizerState,
            _ => Category::Temporaries,
        }
    }

    fn of_backward(&self, allocation: &Allocation) -> Category {
        match self.next_update(allocation.born) {
            Some(update) if allocation.freed >= update.start => Category::Gradients,
            None if allocation.freed == u64::MAX => Category::Unknown,
            _ => Category::Temporaries,
        }
    }

    fn of_program(&self, index: usize, allocation: &Allocation) -> Category {
        if allocation.freed != u64::MAX && self.is_backward(allocation.freed) {
            return Category::Activations;
        }
        // Inputs come before the forward pass and live while it runs.
        let run = self.run_of(index);
        let before = run.start.checked_sub(1).map(|before| self.role(before));
        let precedes = self.role(run.end) == Role::Forward
            && !matches!(before, Some(Role::Forward | Role::Backward));
        let lives = allocation.freed > self.end_of_run(index);
        if precedes && lives && self.updates_outlived(allocation) <= 1 {
            Category::Inputs
        } else {
            Category::Unknown
        }
    }
}

/// The role of each allocation: by its stack, or else by the phase.
fn roles(evidence: &Evidence<'_>) -> Vec<Role> {
    let recording = evidence.subject.recording;
    let stacks = recording.map_or(&[][..], |recording| &recording.stacks);
    let by_stack: Vec<Role> = stacks.iter().map(Role::of).collect();
    // The threads of the backward pass have no Python frames.
    let has_python = stacks
        .iter()
        .any(|stack| stack.frames.iter().any(|frame| frame.is_python()));
    let role_of = |index: usize, allocation: &Allocation| {
        let phase = evidence
            .log
            .phase(allocation.born)
            .map_or(Role::Unknown, |mark| Role::of_phase(&mark.tag));
        let id = evidence.stack_of(index);
        let role = id.and_then(|id| by_stack.get(id.0 as usize).copied());
        match role {
            Some(role) if role != Role::Unknown => role,
            _ if !matches!(phase, Role::Unknown | Role::Program) => phase,
            Some(_) if has_python && id.is_some_and(|id| id.0 == 0) => Role::Backward,
            _ => phase,
        }
    };
    evidence
        .allocations()
        .map(|(index, allocation)| role_of(index, allocation))
        .collect()
}

/// The indices at which the role differs from the one before.
fn runs(roles: &[Role]) -> Vec<usize> {
    let pairs = (1..).zip(roles.iter().zip(roles.iter().skip(1)));
    let changes = pairs.filter_map(|(index, (before, role))| (before != role).then_some(index));
    std::iter::once(0).chain(changes).collect()
}

/// The steps of the optimizer: runs of its allocations, and the steps that marks and annotations announce.
fn updates(evidence: &Evidence<'_>, roles: &[Role]) -> Vec<Range<u64>> {
    let allocations = &evidence.log.allocations;
    let born = |index: usize| allocations.get(index).map(|a| a.born);
    let end_from = |index: usize| {
        let rest = roles.iter().skip(index);
        let run = rest.take_while(|role| **role == Role::Optimizer).count();
        born(index + run).unwrap_or(u64::MAX)
    };
    let begins = roles.iter().enumerate().filter(|&(index, role)| {
        let before = index.checked_sub(1).and_then(|before| roles.get(before));
        *role == Role::Optimizer && before != Some(&Role::Optimizer)
    });
    let mut updates: Vec<Range<u64>> = begins
        .filter_map(|(index, _)| Some(born(index)?..end_from(index)))
        .collect();
    for &start in &evidence.updates {
        let index = evidence.log.index_from(start);
        let end = announced_end(evidence, start).unwrap_or_else(|| end_from(index));
        updates.push(start..end.max(end_from(index)));
    }
    updates.sort_by_key(|update| (update.start, update.end));
    // A mark and the allocations after it are one step.
    updates.dedup_by(|later, earlier| {
        let is_same = later.start <= earlier.end;
        if is_same {
            earlier.end = earlier.end.max(later.end);
        }
        is_same
    });
    updates
}

/// The event at which the step of the optimizer that begins at `start` ends, if annotations tell.
fn announced_end(evidence: &Evidence<'_>, start: u64) -> Option<u64> {
    let annotations = evidence.subject.recording?.annotations.iter();
    let mut ends = annotations.filter(|a| !a.is_start && is_update(&a.name));
    ends.find_map(|end| evidence.event_at(end.time_us).filter(|&end| end >= start))
}

/// The workspaces of cuBLAS where stacks do not name it: the first allocation of a known size in the forward or
/// the backward pass on a stream, if it is never freed.
fn workspaces(evidence: &Evidence<'_>, roles: &[Role]) -> HashSet<usize> {
    /// 4096 KiB × 2 + 16 KiB × 8 before Hopper, 4096 KiB × 8 since (at::cuda::parseChosenWorkspaceSize).
    const SIZES: [u64; 2] = [8_519_680, 33_554_432];
    let mut firsts = HashSet::new();
    let allocations = evidence.allocations().zip(roles);
    let of_pass = allocations.filter(|((_, a), role)| {
        SIZES.contains(&a.bytes) && matches!(role, Role::Forward | Role::Backward)
    });
    let kept = of_pass.filter_map(|((index, a), role)| {
        let is_backward = *role == Role::Backward;
        let is_first = firsts.insert((a.bytes, a.stream, is_backward));
        (is_first && a.freed == u64::MAX).then_some(index)
    });
    kept.collect()
}
