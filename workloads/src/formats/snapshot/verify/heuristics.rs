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
pub(super) struct Heuristic {
    /// Whether a new segment is tried in the pool of the last request of its stream before the default pool.
    prefers_current: bool,
    /// Which segments of a private pool were returned together.
    grouping: Grouping,
}

/// Which segments of a private pool were returned together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Grouping {
    /// All, at once.
    SamePart,
    /// All, by one run of entries.
    SameRun,
    /// Any.
    Any,
}

impl Heuristic {
    /// All heuristics, the likeliest first.
    pub(super) const ALL: [Self; 6] = [
        Self::new(true, Grouping::SamePart),
        Self::new(false, Grouping::SamePart),
        Self::new(true, Grouping::SameRun),
        Self::new(false, Grouping::SameRun),
        Self::new(true, Grouping::Any),
        Self::new(false, Grouping::Any),
    ];

    const fn new(prefers_current: bool, grouping: Grouping) -> Self {
        Self {
            prefers_current,
            grouping,
        }
    }
}

impl Observations {
    /// A guess of the private pools of all segments that were gone at the end.
    pub(super) fn guess(&self, heuristic: Heuristic) -> Assignment {
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
            pools = self.labelled(heuristic, &runs);
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
    fn labelled(&self, heuristic: Heuristic, runs: &Runs) -> Vec<MempoolId> {
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
                let first = if heuristic.prefers_current {
                    [current, default]
                } else {
                    [default, current]
                };
                let mut candidates = first.into_iter().flatten().chain(recent.iter().copied());
                let fits = |pool: &MempoolId| self.may_be_in(*pool, index, &pools, heuristic, runs);
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
        heuristic: Heuristic,
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
        match heuristic.grouping {
            Grouping::SamePart => returned.all(|other| place(other) == place(one.returned)),
            Grouping::SameRun => returned.all(|other| run(other) == run(one.returned)),
            Grouping::Any => true,
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
mod tests {
    use coalesce_alloc::driver::DeviceAddr;

    use super::super::observed::Observed;
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{number, pool};

    /// The segment in a line: `kept POOL` or `gone RUN.PART`, with a `d` if the default pool may have returned it.
    fn observed(index: usize, text: &str) -> Observed {
        let words: Vec<&str> = text.split(' ').collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name);
            at.map_or("", |at| words.get(at + 1).copied().unwrap_or(""))
        };
        let list = |name| {
            value(name)
                .split(',')
                .filter(|it| !it.is_empty())
                .map(|it| number(it) as usize)
        };
        let returned = value("gone").trim_end_matches('d').split_once('.');
        Observed {
            key: (DeviceAddr(100 * index as u64), index),
            stream: StreamId(list("on").next().unwrap_or(0) as u64),
            known: (words[0] == "kept").then(|| pool(words[1])),
            returned: returned.map(|(run, part)| Returned {
                run: number(run) as usize,
                part: number(part) as usize,
                may_be_of_default: value("gone").ends_with('d'),
            }),
            differs_from: list("differs").collect(),
            idle_after: list("idle").collect(),
        }
    }

    /// The pool of each segment by each heuristic: 0 for the default pool, `-` for segments that were there at the end.
    #[test]
    fn guesses_agree_with_what_is_observed() {
        cases::check("src/formats/snapshot/cases/heuristics.txt", |text| {
            let (segments, requests) = text.split_once("\nrequests ").unwrap();
            let segments = segments.lines().enumerate();
            let observations = Observations {
                segments: segments
                    .map(|(index, text)| observed(index, text))
                    .collect(),
                requests: requests.split(' ').map(|it| number(it) as usize).collect(),
            };
            let guess = |heuristic| {
                let guess = observations.guess(heuristic);
                let pools = observations.segments.iter().map(|one| {
                    match (one.known, guess.get(&one.key)) {
                        (Some(_), None) => "-".to_owned(),
                        (None, Some(MempoolId(0, number))) => number.to_string(),
                        (None, None) => "0".to_owned(),
                        other => panic!("{other:?}"),
                    }
                });
                pools.collect::<Vec<_>>().join(" ")
            };
            let mut guesses = Heuristic::ALL.map(guess).to_vec();
            if guesses.iter().all(|guess| *guess == guesses[0]) {
                guesses.truncate(1);
            }
            guesses.join(" | ")
        });
    }
}
