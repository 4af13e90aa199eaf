//! Private pools that were gone at the end, found by trial.
//!
//! A private pool (`torch.cuda.graph`, `torch.cuda.MemPool`) shares no memory with other pools. PyTorch 2.11 and
//! earlier record the pools of the segments at the end only, so the pool of a segment that was returned before is
//! unknown. A wrong guess shows: a segment is taken although a free block of another segment fits, or a free block is
//! left unused. The segments of a released pool are usually returned together, so they are guessed together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};

use super::super::Recording;

/// A segment that was returned before the end.
#[derive(Clone, Debug)]
struct GoneSegment {
    bytes: u64,
    /// The entries from the one that takes it, or the first one, to the one that returns it.
    life: Range<usize>,
    /// The number of the run of entries that returns it; other kinds of entries separate runs.
    returned_in: usize,
}

/// The address of a segment and its first entry.
type Key = (DeviceAddr, usize);

/// The segments that were returned before the end.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct GoneSegments(BTreeMap<Key, GoneSegment>);

impl GoneSegments {
    pub(in super::super) fn of(recording: &Recording) -> Self {
        let mut taken = BTreeMap::new();
        let mut gone = BTreeMap::new();
        let (mut run, mut is_in_run) = (0, false);
        for (index, entry) in recording.entries.iter().enumerate() {
            match entry.action {
                Action::SegmentAlloc => _ = taken.insert(entry.addr, index),
                Action::SegmentFree => {
                    run += usize::from(!is_in_run);
                    let first = taken.remove(&entry.addr).unwrap_or(0);
                    let segment = GoneSegment {
                        bytes: entry.size,
                        life: first..index + 1,
                        returned_in: run,
                    };
                    gone.insert((entry.addr, first), segment);
                }
                _ => {}
            }
            is_in_run = entry.action == Action::SegmentFree;
        }
        Self(gone)
    }

    /// The segment that contains an address at an entry.
    fn around(&self, addr: DeviceAddr, entry: usize) -> Option<Key> {
        /// A segment of another time may begin between the segment and the address.
        const MOST: usize = 64;
        let mut below = self.0.range(..=(addr, usize::MAX)).rev().take(MOST);
        let found = below.find(|((start, _), segment)| {
            segment.life.contains(&entry) && addr.offset_from(*start) < segment.bytes
        });
        found.map(|(&key, _)| key)
    }

    /// Whether a segment that was returned before the end contains an address at an entry.
    pub(in super::super) fn contains(&self, addr: DeviceAddr, entry: usize) -> bool {
        self.around(addr, entry).is_some()
    }

    /// The segments that the same run of entries returns: those returned after `key` only, or all.
    fn returned_with(&self, key: Key, later_only: bool) -> Vec<Key> {
        let Some(first) = self.0.get(&key) else {
            return Vec::new();
        };
        let with = self.0.iter().filter(|(_, segment)| {
            let is_later = segment.life.end > first.life.end;
            segment.returned_in == first.returned_in && (is_later || !later_only)
        });
        with.map(|(&key, _)| key).collect()
    }
}

/// The pools of segments that were gone at the end: the guess, and the guesses that did not help.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    /// The numbers of the pools; other segments are in the default pool.
    assigned: BTreeMap<Key, u64>,
    tried: BTreeSet<Vec<(Key, u64)>>,
}

impl Pools {
    /// Whether the guess has any private pool.
    pub(super) fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }

    /// The segments in private pools, and these pools.
    pub(super) fn counts(&self) -> (usize, usize) {
        let pools: BTreeSet<u64> = self.assigned.values().copied().collect();
        (self.assigned.len(), pools.len())
    }

    /// The pool of the segment that contains an address at an entry; none if the segment exists at the end.
    pub(super) fn around(
        &self,
        gone: &GoneSegments,
        addr: DeviceAddr,
        entry: usize,
    ) -> Option<MempoolId> {
        /// Ids that PyTorch does not reach: it counts up from 1.
        const FIRST: u64 = 1 << 62;
        let key = gone.around(addr, entry)?;
        let number = self.assigned.get(&key);
        Some(number.map_or(MempoolId::DEFAULT, |number| MempoolId(0, FIRST + number)))
    }

    /// Another guess after a call whose `recorded` entries begin with the entry `first` differed from `ours`. None if
    /// no segment concerned was returned before the end, or all guesses were tried.
    pub(super) fn refined(
        &self,
        gone: &GoneSegments,
        first: usize,
        recorded: &[TraceEntry],
        ours: &[TraceEntry],
    ) -> Option<Self> {
        let place = |entry: Option<&TraceEntry>| entry.map(|entry| (entry.action, entry.addr));
        let longest = recorded.len().max(ours.len());
        let differs = |at: &usize| place(recorded.get(*at)) != place(ours.get(*at));
        let at = (0..longest).find(differs)?;
        let recorded = recorded.get(at).map(|entry| (entry.addr, first + at));
        let ours = ours.get(at).map(|entry| (entry.addr, first));
        let suspects = [recorded, ours].into_iter().flatten();
        let suspects = suspects.filter_map(|(addr, entry)| gone.around(addr, entry));
        let newest = self.assigned.values().max().copied();
        let next = newest.map_or(0, |newest| newest + 1);
        for suspect in suspects {
            let known = (0..next)
                .rev()
                .map(|pool| (pool, [None, Some(true), Some(false)]));
            let new = (next, [Some(true), Some(false), None]);
            for (pool, extents) in known.chain([new]) {
                for extent in extents {
                    let mut refined = self.assigned.clone();
                    if let Some(later_only) = extent {
                        for key in gone.returned_with(suspect, later_only) {
                            refined.entry(key).or_insert(pool);
                        }
                    }
                    refined.insert(suspect, pool);
                    let guess: Vec<_> = refined.iter().map(|(&key, &pool)| (key, pool)).collect();
                    if refined != self.assigned && !self.tried.contains(&guess) {
                        let mut tried = self.tried.clone();
                        tried.insert(guess);
                        return Some(Self {
                            assigned: refined,
                            tried,
                        });
                    }
                }
            }
        }
        None
    }

    /// Keeps this guess after `other` did not help.
    pub(super) fn reject(&mut self, other: Self) {
        self.tried = other.tried;
    }
}
