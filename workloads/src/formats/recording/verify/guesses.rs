//! What a replay takes for granted although the recording does not tell it, and how it learns better.
//!
//! Each guess is one of few, and a wrong one shows in a call that deviates. So it is made anew there, and
//! the recording replayed from its first entry.

use std::collections::BTreeSet;

use coalesce_alloc::error::Error;
use coalesce_alloc::history::Action;

use super::super::calls::{Call, CallKind};
use super::replay::{Deviation, Plan};
use super::tails::Tails;
use super::trial::Run;

/// What is taken for granted.
#[derive(Clone)]
pub(super) struct Guesses {
    /// Bytes of memory of the device: of every expandable segment the range of addresses is as long as
    /// that and an eighth more.
    pub(super) memory: u64,
    /// What blocks of the start had more than is known.
    tails: Tails,
    /// Whether segments that go back right before others are taken were returned by the malloc that took
    /// those; the others by `empty_cache`.
    pub(super) calls: Vec<Call>,
    /// The ends of the calls of which that was decided anew.
    decided: BTreeSet<usize>,
}

/// Guesses after one of them was made anew.
pub(super) struct Refined {
    pub(super) guesses: Guesses,
    /// Whether the old one is as good if the replay does not get further.
    pub(super) must_help: bool,
}

impl Guesses {
    /// The most likely ones.
    pub(super) fn first(plan: &Plan<'_>, capacity: Option<u64>) -> Self {
        Self {
            memory: capacity.unwrap_or_else(|| plan.most_memory()),
            tails: Tails::default(),
            calls: plan.calls.clone(),
            decided: BTreeSet::new(),
        }
    }

    pub(super) fn tails(&self) -> &Tails {
        &self.tails
    }

    /// Better ones, seeing how the replay ended with these. None if nothing that is guessed can have
    /// been the reason.
    pub(super) fn refine(&self, plan: &Plan<'_>, run: &Run) -> Option<Refined> {
        let (index, deviation) = run.stopped.as_ref()?;
        let call = self.calls.get(*index)?;
        let shorter = || self.with_less_memory(plan, call, deviation);
        let other = || self.with_other_caller(plan, *index);
        let longer = || {
            let mut guesses = self.clone();
            let first = call.entries.start;
            let lengthened = guesses
                .tails
                .lengthen(plan, &deviation.ours, &run.segments, first);
            lengthened.then_some(Refined {
                guesses,
                must_help: false,
            })
        };
        shorter().or_else(other).or_else(longer)
    }

    /// Goes back to these, having tried others that did not help.
    pub(super) fn reject(&mut self, others: Self) {
        self.decided = others.decided;
    }

    /// A sentence on what was found by trying, if anything was.
    pub(super) fn remark(&self) -> Option<String> {
        let tails = self.tails.len();
        (tails > 0).then(|| format!("the sizes of {tails} of these blocks were found by trying"))
    }

    /// If the allocator wanted a new range of addresses where one is already, that one is shorter.
    fn with_less_memory(
        &self,
        plan: &Plan<'_>,
        call: &Call,
        deviation: &Deviation,
    ) -> Option<Refined> {
        let Some(Error::VirtualMemory(_)) = deviation.error else {
            return None;
        };
        let mut entries = plan.entries_of(call).iter();
        let maps = entries.find(|entry| entry.action == Action::SegmentMap)?;
        let base = deviation.range_around(maps.addr)?;
        let memory = plan.memory_between(base, maps.addr);
        (0 < memory && memory < self.memory).then(|| Refined {
            guesses: Self {
                memory,
                ..self.clone()
            },
            must_help: false,
        })
    }

    /// Segments that a malloc returned may have been returned before it, and the other way round.
    fn with_other_caller(&self, plan: &Plan<'_>, index: usize) -> Option<Refined> {
        let call = self.calls.get(index)?;
        let mut guesses = self.clone();
        let is_malloc = |kind| matches!(kind, CallKind::Malloc | CallKind::FailedMalloc);
        if is_malloc(call.kind) {
            let entries = plan.entries_of(call);
            let mut entries = entries.iter();
            let last = entries.rposition(|entry| entry.action.returns_memory())?;
            let split = call.entries.start + last + 1;
            let emptied = Call {
                kind: CallKind::EmptyCache,
                entries: call.entries.start..split,
            };
            guesses.calls.get_mut(index)?.entries.start = split;
            guesses.calls.insert(index, emptied);
        } else {
            let next = self
                .calls
                .get(index + 1)
                .filter(|next| is_malloc(next.kind))?;
            if call.kind != CallKind::EmptyCache {
                return None;
            }
            guesses.calls.get_mut(index)?.kind = next.kind;
            guesses.calls.get_mut(index)?.entries.end = next.entries.end;
            guesses.calls.remove(index + 1);
        }
        let end = guesses.calls.get(index)?.entries.end.max(call.entries.end);
        guesses.decided.insert(end).then_some(Refined {
            guesses,
            must_help: true,
        })
    }
}
