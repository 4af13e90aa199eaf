//! First guesses of the private pools of segments that were gone at the end, which agree with what the recording shows.
//!
//! Segments that were in different pools are put into different ones; a segment that is wholly free after the default
//! pool returned its segments was not in that pool; and a private pool returns its segments together, after the default
//! pool.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;

use super::observed::Observations;
use super::pools::{Assignment, number};
use super::returned::Returned;

/// How a first guess is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    /// Whether a new segment is rather in the pool of the last request of its stream than in the default pool.
    prefers_current: bool,
    /// Which segments of a private pool were returned together.
    together: Together,
}

/// Which segments of a private pool were returned together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Together {
    /// All, at once.
    InPart,
    /// All, by one run of entries.
    InRun,
    /// Any.
    No,
}

impl Taste {
    /// All tastes, the likeliest first.
    pub(super) const ALL: [Self; 6] = [
        Self::new(true, Together::InPart),
        Self::new(false, Together::InPart),
        Self::new(true, Together::InRun),
        Self::new(false, Together::InRun),
        Self::new(true, Together::No),
        Self::new(false, Together::No),
    ];

    const fn new(prefers_current: bool, together: Together) -> Self {
        Self {
            prefers_current,
            together,
        }
    }
}

impl Observations {
    /// A guess of the private pools of all segments that were gone at the end.
    pub(super) fn guess(&self, taste: Taste) -> Assignment {
        /// Each round knows more runs that emptied the default pool.
        const ROUNDS: usize = 3;
        let mut runs = Runs::default();
        let at_end = self
            .segments
            .iter()
            .filter(|one| one.known == Some(MempoolId::DEFAULT));
        runs.of_private = at_end
            .flat_map(|one| one.idle_after.iter().copied())
            .collect();
        let mut pools = Vec::new();
        for _ in 0..ROUNDS {
            pools = self.labelled(taste, &runs);
            let labelled = self.segments.iter().zip(&pools);
            let of_default = labelled.filter(|(_, pool)| **pool == MempoolId::DEFAULT);
            let returned = of_default.filter_map(|(one, _)| one.returned);
            runs.of_default = returned.map(|returned| returned.run).collect();
        }
        let labelled = self.segments.iter().zip(pools);
        let private =
            labelled.filter(|(one, pool)| one.known.is_none() && *pool != MempoolId::DEFAULT);
        private.map(|(one, pool)| (one.key, pool)).collect()
    }

    /// The pool of each segment.
    fn labelled(&self, taste: Taste, runs: &Runs) -> Vec<MempoolId> {
        let mut pools: Vec<Option<MempoolId>> = self.segments.iter().map(|one| one.known).collect();
        let known = pools.iter().flatten().map(|pool| number(*pool));
        let mut next = known.max().unwrap_or(0) + 1;
        // The pools of the last requests of each stream, the latest first.
        let mut recent: BTreeMap<StreamId, Vec<MempoolId>> = BTreeMap::new();
        for &index in &self.requests {
            let one = &self.segments[index];
            let recent = recent.entry(one.stream).or_default();
            let pool = pools[index].unwrap_or_else(|| {
                let default = Some(MempoolId::DEFAULT);
                let current = recent.first().copied();
                let first = match taste.prefers_current {
                    true => [current, default],
                    false => [default, current],
                };
                let mut candidates = first.into_iter().flatten().chain(recent.iter().copied());
                let fits = |pool: &MempoolId| self.may_be_in(*pool, index, &pools, taste, runs);
                candidates.find(fits).unwrap_or_else(|| {
                    next += 1;
                    MempoolId(0, next - 1)
                })
            });
            pools[index] = Some(pool);
            recent.retain(|&other| other != pool);
            recent.insert(0, pool);
        }
        pools.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn may_be_in(
        &self,
        pool: MempoolId,
        index: usize,
        pools: &[Option<MempoolId>],
        taste: Taste,
        runs: &Runs,
    ) -> bool {
        let one = &self.segments[index];
        let is_in = |&other: &usize| pools[other] == Some(pool);
        if one.differs_from.iter().any(is_in) {
            return false;
        }
        if pool == MempoolId::DEFAULT {
            let may_be_of_default = |returned: Returned| {
                returned.may_be_of_default && !runs.of_private.contains(&returned.run)
            };
            return one.returned.is_none_or(may_be_of_default)
                && one.idle_after.is_disjoint(&runs.of_default);
        }
        let members = (0..pools.len()).filter(is_in);
        let mut returned = members.map(|other| self.segments[other].returned);
        let place =
            |returned: Option<Returned>| returned.map(|returned| (returned.run, returned.part));
        let run = |returned: Option<Returned>| returned.map(|returned| returned.run);
        match taste.together {
            Together::InPart => returned.all(|other| place(other) == place(one.returned)),
            Together::InRun => returned.all(|other| run(other) == run(one.returned)),
            Together::No => true,
        }
    }
}

/// What the runs of entries that return segments emptied.
#[derive(Debug, Default)]
struct Runs {
    /// Those that emptied the default pool.
    of_default: BTreeSet<usize>,
    /// Those that left a wholly free segment of the default pool.
    of_private: BTreeSet<usize>,
}

#[cfg(test)]
mod tests;
