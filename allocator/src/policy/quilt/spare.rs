//! The free memory of which views are mended.

use crate::policy::free_runs::Run;

use super::sizes::{LARGEST, PAGE};
use super::stitch::Pieces;
use super::units::{Unit, Units};
use super::views::View;

/// Units of the same size are a class. Sizes are powers of two.
const CLASSES: usize = (LARGEST / PAGE).ilog2() as usize + 1;

type ByClass = [Vec<Unit>; CLASSES];

/// Bytes of a unit of a class.
fn bytes_of(class: usize) -> u64 {
    PAGE << class
}

fn class_of(unit: Unit) -> usize {
    (unit.run.bytes / PAGE).ilog2() as usize
}

/// The free memory that a request can use.
#[derive(Debug)]
pub(super) struct Supply {
    /// Whole units, in the order of their positions.
    whole: ByClass,
    /// Free ends of partly used units, the longest last. A block can begin with one.
    heads: Vec<(Run, Unit)>,
    /// Free starts of partly used units, the shortest first. A block can end with one.
    tails: Vec<(Run, Unit)>,
}

impl Supply {
    pub(super) fn of(pieces: &Pieces, units: &Units) -> Self {
        let sorted = |runs: &[Run]| {
            let with_unit = |&run: &Run| Some((run, units.around(run.start)?));
            let mut sorted: Vec<_> = runs.iter().filter_map(with_unit).collect();
            sorted.sort_unstable_by_key(|(run, _)| (run.bytes, run.start));
            sorted
        };
        let mut whole = ByClass::default();
        for unit in pieces.whole.iter().flat_map(|&run| units.within(run)) {
            whole[class_of(unit)].push(unit);
        }
        Self {
            whole,
            heads: sorted(&pieces.ends),
            tails: sorted(&pieces.starts),
        }
    }
}

/// What of a supply is not in a view, and not taken.
#[derive(Debug)]
pub(super) struct Spare<'a> {
    supply: &'a Supply,
    /// Where the units of the view start, sorted.
    own: Vec<u64>,
    /// How many whole units of the supply come before those that were looked at. The last are taken first.
    left: [usize; CLASSES],
    /// Units that were added. They are taken before others.
    added: ByClass,
}

impl<'a> Spare<'a> {
    pub(super) fn beside(view: &View, supply: &'a Supply) -> Self {
        let mut own: Vec<u64> = view.units().iter().map(|unit| unit.run.start).collect();
        own.sort_unstable();
        Self {
            supply,
            own,
            left: std::array::from_fn(|class| supply.whole[class].len()),
            added: ByClass::default(),
        }
    }

    fn is_other(&self, unit: Unit) -> bool {
        self.own.binary_search(&unit.run.start).is_err()
    }

    /// The longest free end of a unit.
    pub(super) fn head(&self) -> Option<(Run, Unit)> {
        let mut heads = self.supply.heads.iter().rev();
        heads.find(|(_, unit)| self.is_other(*unit)).copied()
    }

    /// The unit with the shortest free start of at least `bytes`, except `first`.
    pub(super) fn tail(&self, bytes: u64, first: Option<Unit>) -> Option<Unit> {
        let tails = &self.supply.tails;
        let from = tails.partition_point(|(run, _)| run.bytes < bytes);
        let mut fitting = tails[from..].iter().map(|&(_, unit)| unit);
        fitting.find(|&unit| self.is_other(unit) && Some(unit) != first)
    }

    pub(super) fn add(&mut self, unit: Unit) {
        self.added[class_of(unit)].push(unit);
    }

    fn take(&mut self, class: usize) -> Option<Unit> {
        self.added[class].pop().or_else(|| {
            let units = &self.supply.whole[class][..self.left[class]];
            let other = units.iter().rposition(|&unit| self.is_other(unit));
            self.left[class] = other.unwrap_or(0);
            other.map(|index| units[index])
        })
    }

    /// Takes the largest unit of at most `bytes`.
    pub(super) fn take_within(&mut self, bytes: u64) -> Option<Unit> {
        let mut fitting = (0..CLASSES).rev().filter(|&class| bytes_of(class) <= bytes);
        fitting.find_map(|class| self.take(class))
    }

    /// Takes the smallest unit of at least `bytes`.
    pub(super) fn take_around(&mut self, bytes: u64) -> Option<Unit> {
        let mut fitting = (0..CLASSES).filter(|&class| bytes_of(class) >= bytes);
        fitting.find_map(|class| self.take(class))
    }

    /// Takes units of exactly `bytes` in total, or none. Sizes are powers of two, so the largest that fit are a solution
    /// if there is one.
    pub(super) fn take_exactly(&mut self, bytes: u64) -> Option<Vec<Unit>> {
        let mut taken: Vec<Unit> = Vec::new();
        let mut missing = bytes;
        while missing > 0 {
            let Some(unit) = self.take_within(missing) else {
                taken.into_iter().for_each(|unit| self.add(unit));
                return None;
            };
            missing -= unit.run.bytes;
            taken.push(unit);
        }
        Some(taken)
    }
}
