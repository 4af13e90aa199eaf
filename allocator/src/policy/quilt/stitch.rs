//! Maps free memory from several places to consecutive addresses.

use crate::driver::Driver;
use crate::policy::free_runs::Run;
use crate::policy::{Refusal, Served};

use super::Quilt;
use super::sizes::PAGE;
use super::streams::StreamNumber;
use super::units::{Unit, Units};
use super::views::Place;

/// The free pieces of which a view can be stitched.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Whole units, in runs.
    pub(super) whole: Vec<Run>,
    /// Free ends of partly used units. A block can begin with one.
    pub(super) ends: Vec<Run>,
    /// Free starts of partly used units. A block can end with one.
    pub(super) starts: Vec<Run>,
}

impl Pieces {
    pub(super) fn of(free: impl Iterator<Item = Run>, units: &Units) -> Self {
        let mut pieces = Self::default();
        for run in free {
            let first = units.around(run.start).map(|unit| unit.run);
            let last = units.around(run.end() - 1).map(|unit| unit.run);
            let (Some(first), Some(last)) = (first, last) else {
                continue;
            };
            let from = if run.contains(first) {
                first.start
            } else {
                first.end()
            };
            let to = if run.contains(last) {
                last.end()
            } else {
                last.start
            };
            if from < to {
                pieces.whole.push(Run::between(from, to));
            }
            if run.start < from && from <= run.end() {
                pieces.ends.push(Run::between(run.start, from));
            }
            if run.start <= to && to < run.end() {
                pieces.starts.push(Run::between(to, run.end()));
            }
        }
        pieces
    }

    fn of_whole_units(self) -> Self {
        Self {
            whole: self.whole,
            ..Self::default()
        }
    }

    /// The longest piece that a block can begin with.
    fn head(&self) -> Option<Run> {
        self.ends.iter().copied().max_by_key(|run| run.bytes)
    }

    /// The longest piece that a block with this head can end with.
    fn tail(&self, head: Option<Unit>) -> Option<Run> {
        self.tails(head).max_by_key(|run| run.bytes)
    }

    /// The pieces that a block can end with. They are in other units than the head, because a view contains a unit only
    /// once.
    fn tails(&self, head: Option<Unit>) -> impl Iterator<Item = Run> {
        let is_other = move |run: &Run| head.is_none_or(|unit| !unit.run.contains(*run));
        self.starts.iter().copied().filter(is_other)
    }
}

/// Units that are mapped one behind the other, and where the block starts.
#[derive(Debug)]
struct Stitches {
    units: Vec<Unit>,
    /// From the start of the first unit.
    offset: u64,
}

/// Chooses free memory for `bytes`; or says how many bytes are missing. The block begins and ends with the longest
/// pieces there are, so that these are used up and whole units remain. In between are the longest runs, so that the
/// view has few patches.
fn choose(pieces: &Pieces, units: &Units, bytes: u64) -> Result<Stitches, u64> {
    let head = pieces.head();
    let head_unit = head.and_then(|run| units.around(run.start));
    let tail = pieces.tail(head_unit).map_or(0, |run| run.bytes);
    let whole: u64 = pieces.whole.iter().map(|run| run.bytes).sum();
    let available = head.map_or(0, |run| run.bytes) + whole + tail;
    if available < bytes {
        return Err(bytes - available);
    }
    let mut stitches = Stitches {
        units: Vec::new(),
        offset: 0,
    };
    let mut missing = bytes;
    if let (Some(run), Some(unit)) = (head, head_unit) {
        stitches.units.push(unit);
        stitches.offset = run.start - unit.run.start;
        missing = missing.saturating_sub(run.bytes);
    }
    let mut runs = pieces.whole.clone();
    runs.sort_unstable_by_key(|run| (run.bytes, run.start));
    while missing > tail && !runs.is_empty() {
        // The longest run that is used entirely, or else a part of the shortest.
        let fitting = runs.partition_point(|run| run.bytes <= missing);
        let run = runs.remove(fitting.saturating_sub(1));
        for unit in units.within(run) {
            if missing <= tail {
                break;
            }
            stitches.units.push(unit);
            missing = missing.saturating_sub(unit.run.bytes);
        }
    }
    if missing > 0 {
        let fitting = pieces.tails(head_unit).filter(|run| run.bytes >= missing);
        let smallest = fitting.min_by_key(|run| (run.bytes, run.start));
        let unit = smallest.and_then(|run| units.around(run.start));
        stitches.units.extend(unit);
    }
    Ok(stitches)
}

impl Quilt {
    /// Serves a request from several free runs, and from new memory as far as they do not suffice.
    pub(super) fn stitch(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamNumber,
    ) -> Served<Place> {
        let mut pieces = self.pieces(stream);
        let mut chosen = if self.mechanisms.views {
            choose(&pieces, &self.units, bytes)
        } else {
            Err(bytes)
        };
        if chosen.is_err() && self.reclaim_pools(device)? {
            if let Some(place) = self.fit(bytes, stream) {
                return Ok(place);
            }
            pieces = self.pieces(stream);
            chosen = choose(&pieces, &self.units, bytes);
        }
        if let Err(missing) = chosen {
            let missing = missing.next_multiple_of(PAGE);
            let moved = self.feed(missing);
            self.grow(device, missing.saturating_sub(moved))?;
            if let Some(run) = self.best_fit(bytes, stream) {
                return Ok(Place::Home(run.start));
            }
            pieces = self.pieces(stream);
            chosen = choose(&pieces, &self.units, bytes);
        }
        let stitches = chosen.map_err(|_| Refusal::OutOfMemory)?;
        self.retire_views(device)?;
        if let Some(place) = self.mend(device, bytes, &pieces, stitches.units.len())? {
            return Ok(place);
        }
        let view = self.views.map(device, &mut self.undo, stitches.units)?;
        Ok(Place::View(view, stitches.offset))
    }

    pub(super) fn pieces(&self, stream: StreamNumber) -> Pieces {
        let pieces = match self.usable(stream) {
            Some(usable) => Pieces::of(usable.into_iter(), &self.units),
            None => Pieces::of(self.pools.space().free.iter(), &self.units),
        };
        if self.mechanisms.ends {
            pieces
        } else {
            pieces.of_whole_units()
        }
    }

    /// Takes `bytes`, a multiple of [`PAGE`], from the device. Takes more if larger units pay and there is enough memory.
    fn grow(&mut self, device: &mut dyn Driver, bytes: u64) -> Served {
        if bytes == 0 {
            return Ok(());
        }
        let (least, largest) = if !self.mechanisms.large_units {
            (PAGE, PAGE)
        } else if self.pools.any_private() {
            (PAGE, self.units.sizes().largest_beside_pools())
        } else {
            (self.units.sizes().least(), u64::MAX)
        };
        let wanted = bytes.next_multiple_of(least);
        let mut created = Vec::new();
        let mut taken = 0;
        while taken < wanted {
            let most = (wanted - taken).min(largest);
            match self.units.create(device, &mut self.undo, most) {
                Ok(unit) => {
                    taken += unit.run.bytes;
                    created.push(unit);
                }
                // The rest is not needed.
                Err(_) if taken >= bytes => break,
                Err(refusal) => {
                    for unit in created.into_iter().rev() {
                        self.units.remove(&mut self.undo, unit);
                    }
                    self.settle(device)?;
                    return Err(refusal);
                }
            }
        }
        for unit in created {
            self.pools.space_mut().free.give(unit.run);
        }
        Ok(())
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
        fn a_stitched_block_has_free_bytes_of_different_units(
            sizes in prop::collection::vec(0_u32..3, 1..8),
            used in prop::collection::vec((0_u64..40 << 10, 1_u64..3000), 0..12),
            wanted in 1_u64..48 << 10,
        ) {
            let mut memory = Fragments::new(sizes, used);
            let Fragments { device, undo, units, free } = &mut memory;
            let bytes = wanted * KIB;
            let pieces = Pieces::of(free.iter(), units);
            let whole: u64 = units.iter().filter(|unit| free.contains(unit.run)).map(|unit| unit.run.bytes).sum();
            prop_assert_eq!(pieces.whole.iter().map(|run| run.bytes).sum::<u64>(), whole);
            match choose(&pieces, units, bytes) {
                Err(missing) => prop_assert!(missing > 0 && whole + missing <= bytes),
                Ok(Stitches { units: chosen, offset }) => {
                    let mut views = Views::default();
                    let view = views.map(device, undo, chosen).unwrap();
                    memory.take_block(views.get(view).unwrap(), offset, bytes);
                }
            }
        }
    }
}
