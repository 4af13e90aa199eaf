//! Guesses of what a recording does not contain, and their correction.
//!
//! Each guess has few alternatives, and a wrong one causes a call to deviate. The guess is then changed and
//! the recording replayed from its first entry.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use coalesce_alloc::error::Error;
use coalesce_alloc::history::Action;
use coalesce_alloc::snapshot::SegmentInfo;

use super::super::calls::{Call, CallKind};
use super::pools::Pools;
use super::prepared::{Deviation, Prepared};
use super::tails::Tails;

/// The assumptions of a replay.
#[derive(Clone, Default)]
pub(super) struct Guesses {
    /// Bytes of device memory, which determine the address range of each expandable segment.
    pub(super) memory: u64,
    /// The unrecorded tails of blocks at the start.
    tails: Tails,
    /// The calls. If segments are returned right before others are taken, either the malloc that took
    /// these or an `empty_cache` before it returned them.
    pub(super) calls: Arc<Vec<Call>>,
    /// The ends of the calls for which that decision was changed.
    decided: BTreeSet<usize>,
    /// The private pools that were gone at the end.
    pub(super) pools: Pools,
    /// Whether to guess such pools.
    pub(super) guesses_pools: bool,
}

/// Guesses with one of them changed.
pub(super) struct Refined {
    pub(super) guesses: Guesses,
    /// Whether to keep the old guesses if the replay does not get further.
    pub(super) must_help: bool,
}

impl Guesses {
    /// The most likely guesses.
    pub(super) fn first(prepared: &Prepared<'_>, capacity: Option<u64>) -> Self {
        Self {
            memory: capacity.unwrap_or_else(|| prepared.most_memory()),
            calls: Arc::clone(&prepared.calls),
            ..Self::default()
        }
    }

    pub(super) fn tails(&self) -> &Tails {
        &self.tails
    }

    /// Better guesses after the call with this index deviated and left `segments`. None if no guess can
    /// be the cause.
    pub(super) fn refine(
        &self,
        prepared: &Prepared<'_>,
        index: usize,
        deviation: &Deviation,
        segments: &[SegmentInfo],
    ) -> Option<Refined> {
        let call = self.calls.get(index)?;
        let shorter = || self.with_less_memory(prepared, call, deviation);
        let other = || self.with_other_caller(prepared, index);
        let longer = || {
            let mut guesses = self.clone();
            let first = call.entries().start;
            let lengthened = guesses
                .tails
                .lengthen(prepared, &deviation.ours, segments, first);
            lengthened.then_some(Refined {
                guesses,
                must_help: false,
            })
        };
        let pools = || self.with_other_pools(prepared, call, deviation);
        shorter().or_else(other).or_else(longer).or_else(pools)
    }

    /// Keeps these guesses after `others` did not help.
    pub(super) fn reject(&mut self, others: Self) {
        self.decided = others.decided;
        self.pools.reject(others.pools);
    }

    /// Sentences about the guesses that were found by trial.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let tails = self.tails.len();
        if tails > 0 {
            remarks.push(format!(
                "the sizes of {tails} of these blocks were found by trial"
            ));
        }
        let (segments, pools) = self.pools.counts();
        if pools > 0 {
            remarks.push(format!(
                "the private pools (torch.cuda.graph or MemPool) of returned segments are not recorded; found by \
                 trial: {pools}, with {segments} segments"
            ));
        }
        remarks
    }

    /// Another guess of the private pools that were gone at the end.
    fn with_other_pools(
        &self,
        prepared: &Prepared<'_>,
        call: &Call,
        deviation: &Deviation,
    ) -> Option<Refined> {
        if !self.guesses_pools || !prepared.recording.entry_pools.is_empty() {
            return None;
        }
        let recorded = prepared.entries_of(call);
        let first = call.entries().start;
        let pools = self
            .pools
            .refined(&prepared.gone, first, recorded, &deviation.ours)?;
        Some(Refined {
            guesses: Self {
                pools,
                ..self.clone()
            },
            must_help: true,
        })
    }

    /// Less memory, if the allocator needed a new address range where a reserved one lies: that one must
    /// be shorter.
    fn with_less_memory(
        &self,
        prepared: &Prepared<'_>,
        call: &Call,
        deviation: &Deviation,
    ) -> Option<Refined> {
        let Some(Error::VirtualMemory(_)) = deviation.error else {
            return None;
        };
        let mut entries = prepared.entries_of(call).iter();
        let maps = entries.find(|entry| entry.action == Action::SegmentMap)?;
        let base = deviation.range_around(maps.addr)?;
        let memory = prepared.memory_between(base, maps.addr);
        (0 < memory && memory < self.memory).then(|| Refined {
            guesses: Self {
                memory,
                ..self.clone()
            },
            must_help: false,
        })
    }

    /// The other decision on whether a malloc or an `empty_cache` before it returned segments.
    fn with_other_caller(&self, prepared: &Prepared<'_>, index: usize) -> Option<Refined> {
        let call = self.calls.get(index)?;
        let mut guesses = self.clone();
        let calls = Arc::make_mut(&mut guesses.calls);
        let is_malloc = |kind| matches!(kind, CallKind::Malloc | CallKind::FailedMalloc);
        if is_malloc(call.kind) {
            let mut entries = prepared.entries_of(call).iter();
            let last = entries.rposition(|entry| entry.action.returns_memory())?;
            let Range { start, end } = call.entries();
            let split = start + last + 1;
            *calls.get_mut(index)? = Call::new(call.kind, split..end);
            calls.insert(index, Call::new(CallKind::EmptyCache, start..split));
        } else {
            let next = self
                .calls
                .get(index + 1)
                .filter(|next| is_malloc(next.kind))?;
            if call.kind != CallKind::EmptyCache {
                return None;
            }
            let entries = call.entries().start..next.entries().end;
            *calls.get_mut(index)? = Call::new(next.kind, entries);
            calls.remove(index + 1);
        }
        let end = calls.get(index)?.entries().end.max(call.entries().end);
        guesses.decided.insert(end).then_some(Refined {
            guesses,
            must_help: true,
        })
    }
}

#[cfg(test)]
mod tests;
