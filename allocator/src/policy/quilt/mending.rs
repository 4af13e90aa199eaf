//! Mends unused views: exchanges units that are in use for free ones, so that the view serves a request again.
//!
//! A mapping costs the same for a unit of any size, and a large block consists of hundreds. A program whose sizes differ from
//! step to step leaves almost the same memory free in each, so an earlier view has most of what a new one would map.

use crate::driver::Driver;
use crate::policy::Served;
use crate::policy::free_runs::{FreeRuns, Run};

use super::Quilt;
use super::spare::{Spare, Supply};
use super::stitch::Pieces;
use super::units::Unit;
use super::views::{Place, View, ViewId};

/// The most views that are looked at, those used last.
const CANDIDATES: usize = 16;
/// The fewest units of a new view for which they are looked at. To map fewer takes less time than to look.
const WORTHWHILE: usize = 8;

/// How a view is mapped to serve a request, unit by unit.
#[derive(Debug)]
struct Plan<'a> {
    units: Vec<Unit>,
    /// Where the block starts.
    offset: u64,
    /// Units to map, and to unmap.
    added: usize,
    removed: usize,
    /// Bytes of the request that are not placed yet.
    missing: u64,
    /// Bytes of the view behind `units` whose memory is not exchanged yet.
    hole: u64,
    spare: Spare<'a>,
    /// The free end of a unit in which the block can start; `None` once it starts there.
    head: Option<(Run, Unit)>,
}

impl<'a> Plan<'a> {
    /// Plans how a view serves a request for `bytes`: units in use are exchanged for others of `supply`, and what is
    /// missing is added at the end. There is no plan with `most` calls or more.
    fn of(
        view: &View,
        supply: &'a Supply,
        free: &FreeRuns,
        bytes: u64,
        most: usize,
    ) -> Option<Self> {
        let spare = Spare::beside(view, supply);
        let mut plan = Self {
            units: Vec::new(),
            offset: 0,
            added: 0,
            removed: 0,
            missing: bytes,
            hole: 0,
            head: spare.head(),
            spare,
        };
        for &unit in view.units() {
            if !plan.keep(unit, free) {
                plan.exchange(unit, free);
            }
            if plan.calls() >= most {
                return None;
            }
        }
        if plan.units.is_empty() {
            plan.start();
        }
        plan.finish()?;
        let mapped: u64 = plan.units.iter().map(|unit| unit.run.bytes).sum();
        (mapped <= view.room() && plan.calls() < most).then_some(plan)
    }

    fn calls(&self) -> usize {
        self.added + self.removed
    }

    /// Keeps a unit of the view in its place if the block can continue in it, or ends before it.
    fn keep(&mut self, unit: Unit, free: &FreeRuns) -> bool {
        let size = unit.run.bytes;
        let is_first = self.units.is_empty() && self.hole == 0;
        let (starts, ends) = free.free_ends(unit.run);
        if is_first {
            if ends == 0 {
                return false;
            }
            self.offset = size - ends;
            self.missing = self.missing.saturating_sub(ends);
        } else {
            // A hole is filled only if it pays. Its head may have fewer bytes than the hole, so `missing` is looked at again.
            let serves = |missing: u64| starts == size || starts >= missing;
            if !serves(self.missing.saturating_sub(self.hole))
                || !self.fill()
                || !serves(self.missing)
            {
                return false;
            }
            self.missing = self.missing.saturating_sub(starts);
        }
        self.units.push(unit);
        true
    }

    /// Plans to unmap a unit of the view.
    fn exchange(&mut self, unit: Unit, free: &FreeRuns) {
        self.hole += unit.run.bytes;
        self.removed += 1;
        if free.contains(unit.run) {
            self.spare.add(unit);
        }
    }

    /// Fills the hole exactly, if that is possible.
    fn fill(&mut self) -> bool {
        let is_start = self.units.is_empty() && self.hole > 0;
        let head = self
            .head
            .filter(|(_, unit)| is_start && unit.run.bytes <= self.hole);
        let rest = self.hole - head.map_or(0, |(_, unit)| unit.run.bytes);
        let Some(instead) = self.spare.take_exactly(rest) else {
            return false;
        };
        if head.is_some() {
            self.start();
        }
        self.missing = self.missing.saturating_sub(rest);
        self.added += instead.len();
        self.units.extend(instead);
        self.hole = 0;
        true
    }

    /// Starts the block in the free end of a partly used unit, if there is one.
    fn start(&mut self) {
        if let Some((run, unit)) = self.head.take() {
            self.offset = run.start - unit.run.start;
            self.missing = self.missing.saturating_sub(run.bytes);
            self.added += 1;
            self.units.push(unit);
        }
    }

    /// Adds units at the end until nothing is missing.
    fn finish(&mut self) -> Option<()> {
        let first = self.units.first().copied();
        while self.missing > 0 {
            let tail = self.spare.tail(self.missing, first);
            let unit = tail
                .or_else(|| self.spare.take_within(self.missing))
                .or_else(|| self.spare.take_around(self.missing))?;
            self.missing = self.missing.saturating_sub(unit.run.bytes);
            self.added += 1;
            self.units.push(unit);
        }
        Some(())
    }
}

impl Quilt {
    /// Serves a request from the view that is mended with the fewest calls, if these are fewer than `most`. The units that are
    /// added come from `pieces`. Units are unmapped from a view only if all work on it is complete.
    pub(super) fn mend(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        pieces: &Pieces,
        most: usize,
    ) -> Served<Option<Place>> {
        if most < WORTHWHILE || self.is_restricted() {
            return Ok(None);
        }
        let supply = Supply::of(pieces, &self.units);
        let candidates = self.views.changeable().take(CANDIDATES);
        let mut candidates: Vec<ViewId> = candidates.collect();
        candidates.sort_unstable();
        let mut mended = None;
        while let Some((id, plan)) = self.best_plan(&candidates, &supply, bytes, most) {
            let marks = self.views.get(id).map_or(&[][..], View::marks);
            if plan.removed == 0 || self.streams.all_known_over(device, marks)? {
                self.views.change(device, &mut self.undo, id, plan.units)?;
                mended = Some(Place::View(id, plan.offset));
                break;
            }
            candidates.retain(|&other| other != id);
        }
        // Later requests query these events to find out whether the work on a view that is unused now is complete.
        self.streams.record_all(device);
        Ok(mended)
    }

    /// The plan with the fewest calls, if these are fewer than `most`, and its view. Among equals, the first candidate's.
    fn best_plan<'a>(
        &self,
        candidates: &[ViewId],
        supply: &'a Supply,
        bytes: u64,
        most: usize,
    ) -> Option<(ViewId, Plan<'a>)> {
        let free = &self.pools.space().free;
        let mut best: Option<(ViewId, Plan)> = None;
        for &id in candidates {
            let most = best.as_ref().map_or(most, |(_, plan)| plan.calls());
            let view = self.views.get(id);
            let plan = view.and_then(|view| Plan::of(view, supply, free, bytes, most));
            best = plan.map(|plan| (id, plan)).or(best);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fragments::{Fragments, KIB};
    use super::super::views::Views;
    use super::*;

    proptest! {
        #[test]
        fn a_mended_view_has_each_unit_once_and_the_block_free_bytes(
            sizes in prop::collection::vec(0_u32..3, 2..12),
            in_view in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
            used in prop::collection::vec((0_u64..64 << 10, 1_u64..3000), 0..12),
            wanted in 1_u64..40 << 10,
        ) {
            let mut memory = Fragments::new(sizes, used);
            let Fragments { device, undo, units, free } = &mut memory;
            let all: Vec<Unit> = units.iter().collect();
            let mut old: Vec<Unit> = Vec::new();
            for index in in_view {
                let unit = *index.get(&all);
                if !old.contains(&unit) {
                    old.push(unit);
                }
            }
            let mut views = Views::default();
            let id = views.map(device, undo, old.clone()).unwrap();
            let bytes = wanted * KIB;
            let supply = Supply::of(&Pieces::of(free.iter(), units), units);
            let Some(plan) = Plan::of(views.get(id).unwrap(), &supply, free, bytes, usize::MAX) else {
                return Ok(());
            };
            let added = plan.units.iter().filter(|unit| !old.contains(unit)).count();
            prop_assert!(added <= plan.added);
            views.change(device, undo, id, plan.units.clone()).unwrap();
            let view = views.get(id).unwrap();
            prop_assert_eq!(view.units(), &plan.units[..]);
            memory.take_block(view, plan.offset, bytes);
        }
    }
}
