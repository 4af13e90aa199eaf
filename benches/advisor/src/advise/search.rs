//! The search: which settings are tried, and how far.
//!
//! Every candidate is replayed on the device, and with room for everything if that is not the same. The
//! least capacity takes a dozen replays more, so it is only found for who can win: the best so far is the
//! bound, one replay a little below it says whether a candidate is better, and only then is it bisected.
//! What is tried depends on the program and the device alone, not on which thread was first.

use std::collections::BTreeSet;

use coalesce_alloc::driver::GRANULARITY;

use super::Aim;
use super::candidates::Surroundings;
use super::conf::Conf;
use super::ground::{Figures, Ground, PYTORCH};
use super::sizes::Sizes;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::{Bracket, fails_above};
use coalesce_bench::measure::parallel;

/// What is known of a setting.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// None of a present setting that is not one of those searched for.
    pub conf: Option<Conf>,
    pub text: String,
    pub on_device: Figures,
    pub with_room: Figures,
    pub least: Known,
    /// More bytes than the least, with which it fails all the same; none if that was not looked for, or
    /// not seen.
    pub fails_above: Option<u64>,
    /// Whether it was looked for.
    pub looked_above: bool,
}

/// What is known of the least bytes that an allocator must be able to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    Exactly(u64),
    /// More than so many, or so many.
    NotBelow(u64),
}

impl Tried {
    /// How good it is for an aim; the less the better. `None` if that is not known, or the program does
    /// not run to its end.
    pub fn score(&self, aim: Aim) -> Option<u64> {
        match (aim, self.least) {
            (Aim::LeastCapacity, _) => self.safe(),
            _ if !self.on_device.fits() => None,
            (Aim::DriverTime, _) => Some(self.on_device.driver_time_ns),
            (Aim::Reserved, _) => Some(self.on_device.peak_reserved_bytes),
        }
    }

    /// Bytes with which, and with more than which, it runs to its end, as far as was seen: a page more
    /// than those with which it does not.
    pub fn safe(&self) -> Option<u64> {
        let Known::Exactly(least) = self.least else {
            return None;
        };
        let above = self
            .fails_above
            .map(|bytes| bytes.saturating_add(GRANULARITY));
        Some(above.map_or(least, |above| above.max(least)))
    }

    /// How many keys have to be written.
    fn keys(&self) -> usize {
        self.conf.as_ref().map_or(0, Conf::keys)
    }
}

/// How far a search got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Extent {
    /// Settings that were tried.
    pub tried: usize,
    /// Settings that were to be tried when time was up.
    pub left: usize,
    /// Settings under which the allocator failed.
    pub failed: usize,
}

pub(super) struct Search<'a> {
    pub ground: Ground<'a>,
    sizes: &'a Sizes,
    surroundings: Surroundings,
    deadline: Deadline,
    seen: BTreeSet<String>,
    pub tried: Vec<Tried>,
    pub extent: Extent,
}

impl<'a> Search<'a> {
    /// A search that knows the present setting, the defaults and expandable segments, each as well as can
    /// be. The present setting is the first that was tried.
    pub fn begin(
        ground: Ground<'a>,
        sizes: &'a Sizes,
        surroundings: Surroundings,
        present: &str,
        deadline: Deadline,
    ) -> anyhow::Result<Self> {
        let mut search = Self {
            ground,
            sizes,
            surroundings,
            deadline,
            seen: BTreeSet::new(),
            tried: Vec::new(),
            extent: Extent::default(),
        };
        let known = [
            search.surroundings.defaults(),
            search.surroundings.expandable(),
        ];
        let mut first: Vec<(Option<Conf>, String)> = Vec::new();
        let as_known = known.iter().find(|conf| conf.to_string() == present);
        first.push((as_known.cloned(), present.to_owned()));
        let others = known.into_iter().map(|conf| (conf.to_string(), conf));
        let others = others.filter(|(text, _)| text != present);
        first.extend(others.map(|(text, conf)| (Some(conf), text)));
        search
            .seen
            .extend(first.iter().map(|(_, text)| text.clone()));
        let tried = parallel::map(&first, |(conf, text)| {
            let mut tried = search.try_out(conf.clone(), text)?;
            search.find_least(&mut tried)?;
            Ok(tried)
        });
        search.tried = tried.into_iter().collect::<anyhow::Result<_>>()?;
        search.extent.tried = search.tried.len();
        Ok(search)
    }

    /// Tries what there is to try, until time is up.
    pub fn run(&mut self, aim: Aim) -> anyhow::Result<()> {
        const ROUNDS: usize = 3;
        self.round(self.surroundings.singles(self.sizes))?;
        for _ in 0..ROUNDS {
            let good = self.good(aim);
            let lines: Vec<u64> = self.confs().filter_map(|conf| conf.max_split_mib).collect();
            let mut next = self.surroundings.pairs(&good);
            for conf in &good {
                next.extend(self.surroundings.around(conf, &lines, self.sizes));
            }
            self.round(next)?;
        }
        Ok(())
    }

    fn confs(&self) -> impl Iterator<Item = &Conf> {
        self.tried.iter().filter_map(|tried| tried.conf.as_ref())
    }

    /// The best of each kind, for the aim and for the least capacity.
    fn good(&self, aim: Aim) -> Vec<Conf> {
        let kinds: [fn(&Conf) -> bool; 5] = [
            |conf| conf.expandable,
            |conf| conf.max_split_mib.is_some(),
            |conf| conf.roundup.is_some(),
            |conf| conf.collector.is_some(),
            |conf| conf.large_segment_mib.is_some(),
        ];
        let mut good = Vec::new();
        for kind in kinds {
            for aim in [aim, Aim::LeastCapacity] {
                // Of those whose least capacity is not known, what holds least is taken.
                let order = |tried: &&Tried| {
                    let score = tried.score(aim).unwrap_or(u64::MAX);
                    (
                        score,
                        tried.on_device.ooms,
                        tried.on_device.retries,
                        tried.with_room.peak_reserved_bytes,
                    )
                };
                let of_kind = self
                    .tried
                    .iter()
                    .filter(|tried| tried.conf.as_ref().is_some_and(kind));
                let best = of_kind
                    .min_by_key(order)
                    .and_then(|tried| tried.conf.clone());
                good.extend(best);
            }
        }
        good.sort();
        good.dedup();
        good
    }

    /// Tries some settings, each at most once in a search.
    fn round(&mut self, confs: Vec<Conf>) -> anyhow::Result<()> {
        let mut fresh = Vec::new();
        for conf in confs {
            if self.seen.insert(conf.to_string()) {
                fresh.push(conf);
            }
        }
        let bound = self.bound();
        let results = parallel::map(&fresh, |conf| {
            (!self.deadline.has_passed()).then(|| {
                let mut tried = self.try_out(Some(conf.clone()), &conf.to_string())?;
                self.find_least_below(bound, &mut tried)?;
                anyhow::Ok(tried)
            })
        });
        for result in results {
            match result {
                Some(Ok(tried)) => self.tried.push(tried),
                // A setting that breaks the allocator is none to advise.
                Some(Err(_)) => self.extent.failed += 1,
                None => self.extent.left += 1,
            }
        }
        self.extent.tried = self.tried.len();
        Ok(())
    }

    /// The least bytes of the best so far.
    fn bound(&self) -> u64 {
        let known = self
            .tried
            .iter()
            .filter_map(|tried| tried.score(Aim::LeastCapacity));
        known.min().unwrap_or(u64::MAX)
    }

    fn try_out(&self, conf: Option<Conf>, text: &str) -> anyhow::Result<Tried> {
        let (on_device, with_room) = self.ground.both(PYTORCH, text)?;
        Ok(Tried {
            conf,
            text: text.to_owned(),
            on_device,
            with_room,
            least: Known::NotBelow(self.ground.demand.lower_bound_bytes),
            fails_above: None,
            looked_above: false,
        })
    }

    /// Finds the least bytes if they are less than `bound` by more than is worth a word.
    fn find_least_below(&self, bound: u64, tried: &mut Tried) -> anyhow::Result<()> {
        let worth = bound.saturating_sub(tolerance(self.ground.demand.lower_bound_bytes));
        let worth = worth / GRANULARITY * GRANULARITY;
        let lower_bound = self.ground.demand.lower_bound_bytes;
        if worth < lower_bound || !self.ground.fits(PYTORCH, &tried.text, worth)? {
            tried.least = Known::NotBelow(worth.max(lower_bound));
            return Ok(());
        }
        let bracket = Bracket::new(lower_bound, worth);
        tried.least = Known::Exactly(self.ground.least(PYTORCH, &tried.text, bracket)?);
        Ok(())
    }

    /// Finds the least bytes.
    fn find_least(&self, tried: &mut Tried) -> anyhow::Result<()> {
        if let Known::NotBelow(floor) = tried.least {
            let held = tried.with_room.peak_reserved_bytes;
            let mut bracket = self.ground.bracket(PYTORCH, &tried.text, held)?;
            bracket.learn(floor.saturating_sub(GRANULARITY), false);
            tried.least = Known::Exactly(self.ground.least(PYTORCH, &tried.text, bracket)?);
        }
        Ok(())
    }

    /// Finds the least bytes of some of those that were tried, by index, until time is up.
    pub fn complete(&mut self, which: &BTreeSet<usize>, deadline: Deadline) -> anyhow::Result<()> {
        let which: Vec<usize> = which.iter().copied().collect();
        let found = parallel::map(&which, |&index| {
            let mut tried = self.tried.get(index).cloned()?;
            if deadline.has_passed() {
                return None;
            }
            Some(self.find_least(&mut tried).map(|()| tried.least))
        });
        for (index, found) in which.into_iter().zip(found) {
            if let (Some(tried), Some(found)) = (self.tried.get_mut(index), found) {
                tried.least = found?;
            }
        }
        Ok(())
    }

    /// Looks at whether the present setting and the best for the least capacity fail with more memory
    /// than they need, until the best is one that was looked at.
    pub fn look_above(&mut self, deadline: Deadline) -> anyhow::Result<()> {
        let mut next = Some(super::PRESENT);
        while let Some(tried) = next.and_then(|index| self.tried.get_mut(index)) {
            if deadline.has_passed() {
                return Ok(());
            }
            if let Known::Exactly(least) = tried.least {
                let (ground, conf) = (self.ground, &tried.text);
                tried.fails_above =
                    fails_above(least, tried.with_room.peak_reserved_bytes, &|bytes| {
                        ground.fits(PYTORCH, conf, bytes)
                    })?;
            }
            tried.looked_above = true;
            let best = self.best(Aim::LeastCapacity);
            let is_new = |&index: &usize| {
                self.tried
                    .get(index)
                    .is_some_and(|tried| !tried.looked_above)
            };
            next = best.filter(is_new);
        }
        Ok(())
    }

    /// The index of the best for an aim. Of those that are nearly as good, the one with the fewest keys,
    /// and of those the one that is better otherwise.
    pub fn best(&self, aim: Aim) -> Option<usize> {
        best_of(&self.tried, aim, self.ground.demand.lower_bound_bytes)
    }

    /// The index of the best for an aim but for one.
    pub fn next_best(&self, aim: Aim, but: usize) -> Option<usize> {
        let others = self
            .tried
            .iter()
            .enumerate()
            .filter(|&(index, _)| index != but);
        let scored = others.filter_map(|(index, tried)| Some((tried.score(aim)?, index)));
        scored.min().map(|(_, index)| index)
    }

    /// The index of the best for an aim among those of which something holds.
    pub fn best_where(&self, aim: Aim, holds: impl Fn(&Conf) -> bool) -> Option<usize> {
        let of_kind = |tried: &&Tried| tried.conf.as_ref().is_some_and(&holds);
        let tried: Vec<Tried> = self.tried.iter().filter(of_kind).cloned().collect();
        let best = best_of(&tried, aim, self.ground.demand.lower_bound_bytes)?;
        let text = &tried.get(best)?.text;
        self.tried.iter().position(|tried| tried.text == *text)
    }
}

/// Bytes that make no difference: half a percent of what is asked for, at least a page.
pub(super) fn tolerance(lower_bound: u64) -> u64 {
    (lower_bound / 200).max(GRANULARITY)
}

fn best_of(tried: &[Tried], aim: Aim, lower_bound: u64) -> Option<usize> {
    let least = tried.iter().filter_map(|tried| tried.score(aim)).min()?;
    let as_good = match aim {
        Aim::LeastCapacity | Aim::Reserved => least.saturating_add(tolerance(lower_bound)),
        Aim::DriverTime => least.saturating_add(least / 50),
    };
    let good = tried
        .iter()
        .enumerate()
        .filter(|(_, tried)| tried.score(aim).is_some_and(|score| score <= as_good));
    let best = good.min_by_key(|(_, tried)| {
        let on_device = tried.on_device;
        let known = match tried.least {
            Known::Exactly(bytes) => bytes,
            Known::NotBelow(_) => u64::MAX,
        };
        (
            tried.keys(),
            tried.score(aim),
            on_device.driver_time_ns,
            known,
        )
    });
    best.map(|(index, _)| index)
}
