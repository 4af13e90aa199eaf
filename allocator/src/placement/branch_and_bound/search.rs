//! One search: is there a placement no higher than a target?
//!
//! Depth first. A buffer is only ever put on top of what has been placed at its time, and nothing
//! goes below what went before it; every placement without needless gaps can be reached so. A branch
//! ends where it is seen that it cannot reach the target:
//!
//! - *section inference*: in each section something must be able to go so low that all that is left
//!   there has room above;
//! - *skipped buffers*: one that could have gone below the last can only go on top of another that
//!   is still to be placed, so much higher it must go;
//! - *dominance*: nothing goes so high that another buffer would fit below it;
//! - *twins*, of one size and span, are placed in the order of their numbers;
//! - *no companions*: a buffer with which nothing lives that is left has no alternative;
//! - *nogoods*: the same buffers were left before, each with the same lowest offset, in vain.
//!
//! Where no buffer that is left crosses from one section to the next, the parts on both sides do not
//! depend on each other: they are searched one by one, the fullest first.
//!
//! Source: Moffitt, "MiniMalloc" (ASPLOS 2023), for canonical placements, section inference,
//! dominance, the lack of companions and parts; SuperMalloc (fpedd/omnimalloc, 2026) for twins.
//! Skipped buffers and nogoods are additions.

use super::floor::Floor;
use super::nogoods::Nogoods;
use super::preference::Preference;
use super::state::{Part, State};
use crate::placement::budget::Budget;
use crate::placement::sections::Problem;

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// With a placement.
    Found,
    /// There is none.
    Impossible,
    /// Too many nodes or steps.
    GaveUp,
}

/// A buffer that may be placed next, in the order in which they are tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    offset: u64,
    rank: u32,
    buffer: u32,
}

/// A search, whose memory serves the next one, too.
pub(super) struct Search<'a> {
    state: State<'a>,
    target: u64,
    /// How many nodes may still be visited.
    nodes: u64,
    nogoods: Nogoods,
    /// Of all nodes on the way to the current one.
    candidates: Vec<Candidate>,
    /// An inhabitant of each section that could go low enough when one was last looked for.
    witnesses: Vec<u32>,
}

impl<'a> Search<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let state = State::new(problem);
        let inhabitants = state.relations.inhabitants.iter();
        Self {
            witnesses: inhabitants.map(|here| here[0]).collect(),
            state,
            target: 0,
            nodes: 0,
            nogoods: Nogoods::new(),
            candidates: Vec::new(),
        }
    }

    /// Searches for a placement no higher than `target`, and visits at most `nodes` nodes that
    /// might lead to one.
    pub(super) fn run(
        &mut self,
        preference: Preference,
        target: u64,
        nodes: u64,
        budget: &mut Budget,
    ) -> Outcome {
        self.target = target;
        self.nodes = nodes;
        let whole = self.state.restart(preference);
        let floor = self.state.rank(whole, 0);
        self.search(whole, floor, budget)
    }

    /// After [`Outcome::Found`]: the offset of each buffer.
    pub(super) fn offsets(&self) -> &[u64] {
        self.state.offsets()
    }

    /// How many of the nodes of the last search were not visited.
    pub(super) fn nodes_left(&self) -> u64 {
        self.nodes
    }

    /// Places all buffers of a part, none below `floor`. If that is impossible or takes too long,
    /// nothing has changed.
    fn search(&mut self, part: Part, floor: Floor, budget: &mut Budget) -> Outcome {
        if part.is_empty() {
            return Outcome::Found;
        }
        if self.nodes == 0 || !budget.spend(1) {
            return Outcome::GaveUp;
        }
        let fingerprint = self.state.fingerprint(part);
        if self.nogoods.contains(fingerprint, floor) {
            return Outcome::Impossible;
        }
        let Some(ceiling) = self.ceiling(part, floor) else {
            return Outcome::Impossible;
        };
        self.nodes -= 1;
        let parts = self.state.split(part);
        let outcome = if parts.len() > 1 {
            self.search_each(&parts, floor, budget)
        } else {
            self.branch(part, floor, ceiling, budget)
        };
        if outcome == Outcome::Impossible {
            self.nogoods.insert(fingerprint, floor);
        }
        outcome
    }

    /// Section inference: the highest offset that leaves room for all that is left in any section of
    /// the part; none if in some section nothing can go so low.
    fn ceiling(&mut self, part: Part, floor: Floor) -> Option<u64> {
        let mut ceiling = self.target;
        for section in part.sections.sections() {
            let live = self.state.live(section);
            if live == 0 {
                continue;
            }
            let highest = self.target.checked_sub(live)?;
            let is_witness = |&buffer: &u32| self.state.can_go_so_low(buffer, highest, floor);
            if !is_witness(&self.witnesses[section]) {
                let here = self.state.relations.inhabitants[section].iter().copied();
                self.witnesses[section] = here.clone().find(is_witness)?;
            }
            ceiling = highest.min(ceiling);
        }
        Some(ceiling)
    }

    fn search_each(&mut self, parts: &[Part], floor: Floor, budget: &mut Budget) -> Outcome {
        let before = self.state.mark();
        for &part in parts {
            let floor = self.state.rank(part, floor.offset());
            let outcome = self.search(part, floor, budget);
            if outcome != Outcome::Found {
                self.state.take_back(before);
                return outcome;
            }
        }
        Outcome::Found
    }

    /// Tries each buffer that may be the next.
    fn branch(&mut self, part: Part, floor: Floor, ceiling: u64, budget: &mut Budget) -> Outcome {
        let before = self.state.mark();
        let first = self.candidates.len();
        self.collect_candidates(part, floor, ceiling);
        let mut outcome = Outcome::Impossible;
        for index in first..self.candidates.len() {
            let Candidate {
                offset,
                rank,
                buffer,
            } = self.candidates[index];
            let has_companions = self.state.place(part, buffer);
            outcome = self.search(part.less_one(), floor.raised_to(offset, rank), budget);
            if outcome == Outcome::Found {
                break;
            }
            self.state.take_back(before);
            if outcome == Outcome::GaveUp || !has_companions {
                break;
            }
        }
        self.candidates.truncate(first);
        outcome
    }

    fn collect_candidates(&mut self, part: Part, floor: Floor, ceiling: u64) {
        let state = &self.state;
        let first = self.candidates.len();
        let open = state.open(part);
        let tops = open.iter().map(|&buffer| state.lowest_top(buffer));
        let lowest_top = tops.min().unwrap_or(0);
        for &buffer in open {
            let (offset, rank) = (state.lowest(buffer), state.rank_of(buffer));
            let elder = state.relations.elder_twins[buffer as usize];
            if offset <= ceiling
                && offset < lowest_top
                && floor.admits(offset, rank)
                && elder.is_none_or(|elder| !state.is_open(elder))
            {
                self.candidates.push(Candidate {
                    offset,
                    rank,
                    buffer,
                });
            }
        }
        self.candidates[first..].sort_unstable();
    }
}
