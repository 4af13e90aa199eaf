//! One search: is there a placement no higher than a target?
//!
//! Depth first. A buffer is only placed on top of the buffers placed during its life, and never below the
//! last placed one. Every placement without needless gaps can be reached in this way. A branch ends when it
//! cannot reach the target:
//!
//! - *section inference*: in each section, some buffer must fit low enough to leave room above for everything
//!   left there;
//! - *skipped buffers*: a buffer that could have been placed below the last one can only go on top of another
//!   unplaced buffer, which raises its lowest offset;
//! - *dominance*: no buffer is placed so high that another would fit below it;
//! - *twins*, of one size and span, are placed in the order of their numbers;
//! - *no companions*: a buffer without unplaced buffers during its life has no alternative place;
//! - *nogoods*: the same buffers with the same lowest offsets were left before, and the search failed.
//!
//! If no unplaced buffer crosses from one section to the next, the parts on both sides are independent: they
//! are searched separately, the fullest first.
//!
//! Source: Moffitt, "MiniMalloc" (ASPLOS 2023), for canonical placements, section inference, dominance,
//! missing companions and parts; SuperMalloc (fpedd/omnimalloc, 2026) for twins. Skipped buffers and nogoods
//! are additions.

use super::floor::Floor;
use super::nogoods::Nogoods;
use super::preference::Preference;
use super::state::{Part, State};
use crate::placement::budget::Budget;
use crate::placement::sections::Problem;

/// The outcome of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It found a placement.
    Found,
    /// No placement exists.
    Impossible,
    /// It used up its nodes or steps.
    GaveUp,
}

/// A candidate for the next placement, in the order of trial.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    offset: u64,
    rank: u32,
    buffer: u32,
}

/// A search. The next one reuses its memory.
pub(super) struct Search<'a> {
    state: State<'a>,
    target: u64,
    /// Number of nodes that may still be visited.
    nodes: u64,
    nogoods: Nogoods,
    /// Candidates of all nodes on the path to the current one.
    candidates: Vec<Candidate>,
    /// For each section, a buffer that could go low enough at the last test.
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

    /// Searches for a placement no higher than `target` and visits at most `nodes` nodes.
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

    /// Returns the offset of each buffer, after [`Outcome::Found`].
    pub(super) fn offsets(&self) -> &[u64] {
        self.state.offsets()
    }

    /// Returns the number of nodes that the last search did not visit.
    pub(super) fn nodes_left(&self) -> u64 {
        self.nodes
    }

    /// Places all buffers of a part, none below `floor`. Changes nothing if it fails or gives up.
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

    /// Section inference: returns the highest offset that leaves room for everything left in each section
    /// of the part, or `None` if no buffer of some section can go that low.
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

    /// Tries each candidate for the next placement.
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
