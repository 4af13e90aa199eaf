//! Private pools that were gone at the end, found by trial.
//!
//! A private pool (`torch.cuda.graph`, `torch.cuda.MemPool`) shares no memory with other pools. PyTorch 2.11 and
//! earlier record the pools of the segments at the end only, so the pool of a segment that was returned before is
//! unknown. A wrong guess shows: a segment is taken although a free block of another segment fits, a free block is
//! left unused, or a free segment stays where the default pool returns its own. The segments guessed together are
//!
//! - those taken together: a capture empties the cache and then takes its segments on one stream;
//! - those returned together: a released pool returns its small segments, then its large ones, each in search order.
//!
//! The first guess has no private pool; the next ones come from what the recording shows of each segment
//! ([`super::heuristics`]).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};

use super::super::Recording;
use super::returned::{Returned, is_large};

/// The segments that a stream took between two runs of entries that return segments: the stream, and the number of
/// runs before.
type Taking = (StreamId, usize);

/// A segment that was returned before the end.
#[derive(Clone, Debug)]
struct GoneSegment {
    bytes: u64,
    /// The entries from the one that takes it, or the first one, to the one that returns it.
    life: Range<usize>,
    taken_in: Taking,
    returned: Returned,
}

/// The address of a segment and its first entry.
pub(super) type Key = (DeviceAddr, usize);

/// The private pools of segments; other segments are in the default pool.
pub(super) type Assignment = BTreeMap<Key, MempoolId>;

/// The segments that were returned before the end.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct GoneSegments {
    segments: BTreeMap<Key, GoneSegment>,
    /// The private pools of segments that exist at the end, by what took these.
    kept: BTreeMap<Taking, MempoolId>,
    /// The ids of all private pools at the end.
    pools: BTreeSet<MempoolId>,
    /// Whether a run of entries returns a large segment right after a small one, as private pools do.
    is_small_before_large: bool,
}

impl GoneSegments {
    pub(in super::super) fn of(recording: &Recording) -> Self {
        let mut taken: BTreeMap<DeviceAddr, (usize, Taking)> = BTreeMap::new();
        let mut segments = BTreeMap::new();
        let mut returned = Returned::default();
        let mut is_small_before_large = false;
        let mut before: Option<&TraceEntry> = None;
        for (index, entry) in recording.entries.iter().enumerate() {
            match entry.action {
                Action::SegmentAlloc => {
                    taken.insert(entry.addr, (index, (entry.stream, returned.run)));
                }
                Action::SegmentFree => {
                    returned = returned.next(before, entry);
                    is_small_before_large |=
                        before.is_some_and(|before| !is_large(before) && is_large(entry));
                    let at_start = (0, (entry.stream, 0));
                    let (first, taken_in) = taken.remove(&entry.addr).unwrap_or(at_start);
                    let segment = GoneSegment {
                        bytes: entry.size,
                        life: first..index + 1,
                        taken_in,
                        returned,
                    };
                    segments.insert((entry.addr, first), segment);
                }
                _ => {}
            }
            before = Some(entry).filter(|entry| entry.action == Action::SegmentFree);
        }
        let private = recording
            .segments
            .iter()
            .filter(|segment| segment.pool != MempoolId::DEFAULT);
        let kept = private.clone().filter_map(|segment| {
            let (_, taken_in) = taken.get(&segment.address)?;
            Some((*taken_in, segment.pool))
        });
        Self {
            segments,
            kept: kept.collect(),
            pools: private.map(|segment| segment.pool).collect(),
            is_small_before_large,
        }
    }

    /// Whether it is likely that one of the segments was in a private pool.
    pub(super) fn is_any_private(&self) -> bool {
        let are_any = !self.segments.is_empty();
        are_any && (self.is_small_before_large || !self.pools.is_empty())
    }

    /// The segment that contains an address at an entry.
    fn around(&self, addr: DeviceAddr, entry: usize) -> Option<Key> {
        /// A segment of another time may begin between the segment and the address.
        const MOST: usize = 64;
        let mut below = self.segments.range(..=(addr, usize::MAX)).rev().take(MOST);
        let found = below.find(|((start, _), segment)| {
            segment.life.contains(&entry) && addr.offset_from(*start) < segment.bytes
        });
        found.map(|(&key, _)| key)
    }

    /// Whether a segment that was returned before the end contains an address at an entry.
    pub(in super::super) fn contains(&self, addr: DeviceAddr, entry: usize) -> bool {
        self.around(addr, entry).is_some()
    }

    /// The segments that are guessed together with one.
    fn together(&self, key: Key, how: Together) -> Vec<Key> {
        let Some(one) = self.segments.get(&key) else {
            return Vec::new();
        };
        let is_taken_with = |other: &GoneSegment| other.taken_in == one.taken_in;
        let is_in_part = |other: &GoneSegment| other.returned.part == one.returned.part;
        let is_in_run = |other: &GoneSegment| other.returned.run == one.returned.run;
        let with = self.segments.iter().filter(|(_, other)| match how {
            Together::TakenAndReturned => is_taken_with(other) && is_in_part(other),
            Together::Taken => is_taken_with(other),
            Together::ReturnedInPart => is_in_part(other),
            Together::ReturnedLater => is_in_run(other) && other.life.end >= one.life.end,
            Together::Returned => is_in_run(other),
            Together::Alone => other.life == one.life,
        });
        with.map(|(&key, _)| key).collect()
    }

    /// The private pool of segments that were taken together with one; a new one if there is none.
    fn likely_pool(&self, key: Key, guess: &Assignment) -> MempoolId {
        let taken_in = self.segments.get(&key).map(|segment| segment.taken_in);
        let kept = taken_in.and_then(|taken_in| self.kept.get(&taken_in));
        let mut with = self.together(key, Together::Taken).into_iter();
        let known = kept.or_else(|| with.find_map(|other| guess.get(&other)));
        known.copied().unwrap_or_else(|| self.new_pool(guess))
    }

    /// The id of a pool that does not exist at the end, nor in a guess.
    fn new_pool(&self, guess: &Assignment) -> MempoolId {
        let known = self.pools.iter().chain(guess.values());
        MempoolId(0, known.map(|pool| number(*pool) + 1).max().unwrap_or(1))
    }

    /// Whether each pool takes all segments before it returns any: a pool returns segments when nobody uses it any more.
    fn is_possible(&self, guess: &Assignment) -> bool {
        let mut returns: BTreeMap<MempoolId, usize> = BTreeMap::new();
        for (key, &pool) in guess {
            let end = self.segments.get(key).map(|segment| segment.life.end);
            let first = returns.entry(pool).or_insert(usize::MAX);
            *first = (*first).min(end.unwrap_or(usize::MAX));
        }
        guess
            .iter()
            .all(|((_, taken), pool)| *taken < returns[pool])
    }

    /// A guess with the numbers that PyTorch gives to pools: it counts up. They decide in which order `empty_cache`
    /// empties pools.
    fn numbered(&self, guess: Assignment) -> Assignment {
        let mut oldest_first: Vec<_> = guess.iter().collect();
        oldest_first.sort_by_key(|((_, first), _)| *first);
        let used: BTreeSet<u64> = self.pools.iter().copied().map(number).collect();
        let mut unused = (1..).filter(|number| !used.contains(number));
        let mut ids: BTreeMap<MempoolId, MempoolId> =
            self.pools.iter().map(|&pool| (pool, pool)).collect();
        for (_, &pool) in oldest_first {
            if let Entry::Vacant(vacant) = ids.entry(pool) {
                let number = unused.next();
                vacant.insert(number.map_or(pool, |number| MempoolId(0, number)));
            }
        }
        let numbered = guess.iter().map(|(&key, pool)| (key, ids[pool]));
        numbered.collect()
    }
}

/// Which segments are guessed together.
#[derive(Clone, Copy, Debug)]
enum Together {
    /// Those taken together that one pool may have returned together.
    TakenAndReturned,
    /// Those taken together.
    Taken,
    /// Those that one pool may have returned together.
    ReturnedInPart,
    /// Those returned by the same run of entries, from the one on.
    ReturnedLater,
    /// Those returned by the same run of entries.
    Returned,
    /// None but the one.
    Alone,
}

/// The pools of segments that were gone at the end: the guess, and the guesses that did not help.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Pools {
    assigned: Assignment,
    tried: BTreeSet<Assignment>,
}

impl Pools {
    /// A first guess.
    pub(super) fn first(gone: &GoneSegments, guess: Assignment) -> Self {
        let assigned = gone.numbered(guess);
        Self {
            tried: BTreeSet::from([assigned.clone()]),
            assigned,
        }
    }

    /// Whether the guess has any private pool.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.assigned.is_empty()
    }

    /// The segments in private pools, and these pools.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.assigned.len(), pools_of(&self.assigned).len())
    }

    /// The pool of the segment that contains an address at an entry; none if the segment exists at the end.
    pub(in super::super) fn around(
        &self,
        gone: &GoneSegments,
        addr: DeviceAddr,
        entry: usize,
    ) -> Option<MempoolId> {
        let key = gone.around(addr, entry)?;
        let pool = self.assigned.get(&key).copied();
        Some(pool.unwrap_or(MempoolId::DEFAULT))
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
        let suspects = suspects(gone, first, recorded, ours);
        let guess = self.guesses(gone, &suspects).find(|guess| {
            *guess != self.assigned && gone.is_possible(guess) && !self.tried.contains(guess)
        })?;
        let mut tried = self.tried.clone();
        tried.insert(guess.clone());
        Some(Self {
            assigned: guess,
            tried,
        })
    }

    /// All guesses that change the pool of a suspect, the likeliest first: those with the fewest pools.
    fn guesses<'a>(
        &'a self,
        gone: &'a GoneSegments,
        suspects: &'a [Vec<Key>],
    ) -> impl Iterator<Item = Assignment> + 'a {
        use Together::{Alone, Returned, ReturnedInPart, ReturnedLater, Taken, TakenAndReturned};
        let likely = [TakenAndReturned, Taken, ReturnedInPart].into_iter();
        let mut likely: Vec<Assignment> = likely
            .flat_map(move |how| {
                suspects.iter().map(move |keys| {
                    let mut guess = self.assigned.clone();
                    for &key in keys {
                        let pool = gone.likely_pool(key, &guess);
                        assign(&mut guess, key, pool, gone.together(key, how));
                    }
                    guess
                })
            })
            .collect();
        likely.sort_by_key(|guess| pools_of(guess).len());
        let known = pools_of(&self.assigned)
            .into_iter()
            .rev()
            .map(|pool| (pool, [Alone, ReturnedLater, Returned]));
        let new = (
            gone.new_pool(&self.assigned),
            [ReturnedLater, Returned, Alone],
        );
        let ways: Vec<(MempoolId, [Together; 3])> = known.chain([new]).collect();
        let others = suspects.iter().flatten().flat_map(move |&key| {
            let ways = ways
                .clone()
                .into_iter()
                .flat_map(|(pool, hows)| hows.map(|how| (pool, how)));
            ways.map(move |(pool, how)| {
                let mut guess = self.assigned.clone();
                assign(&mut guess, key, pool, gone.together(key, how));
                guess
            })
        });
        likely
            .into_iter()
            .chain(others)
            .map(|guess| gone.numbered(guess))
    }

    /// Keeps this guess after `other` did not help.
    pub(super) fn reject(&mut self, other: Self) {
        self.tried = other.tried;
    }
}

fn pools_of(guess: &Assignment) -> BTreeSet<MempoolId> {
    guess.values().copied().collect()
}

/// The number of a private pool. Pools of graphs and of `MemPool` are counted separately.
pub(super) fn number(pool: MempoolId) -> u64 {
    pool.0.max(pool.1)
}

/// Puts a segment into a pool, and those guessed together with it that are in no private pool.
fn assign(guess: &mut Assignment, key: Key, pool: MempoolId, together: Vec<Key>) {
    for other in together {
        guess.entry(other).or_insert(pool);
    }
    guess.insert(key, pool);
}

/// The segments whose pool may be wrong after a call whose `recorded` entries begin with the entry `first` differed
/// from `ours`: those that only we return, all of them at once; or one of the first entries that differ.
fn suspects(
    gone: &GoneSegments,
    first: usize,
    recorded: &[TraceEntry],
    ours: &[TraceEntry],
) -> Vec<Vec<Key>> {
    let returned = |entries: &[TraceEntry]| -> Vec<DeviceAddr> {
        let entries = entries
            .iter()
            .filter(|entry| entry.action == Action::SegmentFree);
        entries.map(|entry| entry.addr).collect()
    };
    let returned_as_recorded: BTreeSet<_> = returned(recorded).into_iter().collect();
    let mut kept = returned(ours);
    kept.retain(|addr| !returned_as_recorded.contains(addr));
    let kept: Vec<Key> = kept
        .iter()
        .filter_map(|&addr| gone.around(addr, first))
        .collect();

    let place = |entry: Option<&TraceEntry>| entry.map(|entry| (entry.action, entry.addr));
    let longest = recorded.len().max(ours.len());
    let differs = |at: &usize| place(recorded.get(*at)) != place(ours.get(*at));
    let at = (0..longest).find(differs).unwrap_or(longest);
    let recorded = recorded.get(at).map(|entry| (entry.addr, first + at));
    let ours = ours.get(at).map(|entry| (entry.addr, first));
    let one = [recorded, ours].into_iter().flatten();
    let one = one.filter_map(|(addr, entry)| gone.around(addr, entry));
    let kept = Some(kept).filter(|kept| !kept.is_empty());
    kept.into_iter().chain(one.map(|key| vec![key])).collect()
}

#[cfg(test)]
mod tests;
