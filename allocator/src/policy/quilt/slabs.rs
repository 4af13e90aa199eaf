//! *Slabs*: blocks for many small requests of a stream.
//!
//! A slab is divided into cells of 512 bytes. Each run of cells is a block or is free, and no two free runs are adjacent.
//! The first and the last cell of a run store its length, so that a freed block finds its neighbours. There is a list of
//! the free runs of each length, and a bitmap of the lists that are not empty. The best fit is the first run of the first
//! such list whose runs are long enough.

use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;

use super::MIN_BLOCK;
use super::views::Place;

/// Bytes of a slab.
pub(super) const SLAB: u64 = 2 << 20;
/// Bytes of a cell.
const CELL: u64 = MIN_BLOCK;
/// Cells of a slab.
const CELLS: usize = (SLAB / CELL) as usize;
/// No cell.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Length of the run that begins or ends here. Meaningless in any other cell.
    cells: u16,
    is_free: bool,
    /// The free runs before and after this one in their list.
    previous: u32,
    next: u32,
}

impl Cell {
    const UNUSED: Self = Self {
        cells: 0,
        is_free: false,
        previous: NONE,
        next: NONE,
    };
}

/// A run of cells. Cells are numbered through all slabs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: u32,
    cells: u16,
}

impl Run {
    fn last(self) -> u32 {
        self.first + u32::from(self.cells) - 1
    }

    fn slab(self) -> usize {
        self.first as usize / CELLS
    }

    fn is_whole_slab(self) -> bool {
        usize::from(self.cells) == CELLS
    }
}

/// A block that is divided into cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slab {
    pub(super) addr: DeviceAddr,
    pub(super) place: Place,
}

/// The slabs of a stream. Without one, nothing is allocated for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slabs {
    /// By number; `None` once a slab is gone.
    slabs: Vec<Option<Slab>>,
    /// Empty slabs.
    empty: u32,
    cells: Vec<Cell>,
    /// The first free run of each length.
    lists: Vec<u32>,
    /// A bit for each length of which there is a free run.
    lengths: Vec<u64>,
    /// A bit for each word of `lengths` that is not 0.
    words: u128,
    /// Live blocks.
    blocks: u32,
}

impl Slabs {
    /// Allocates a block from the shortest free run that is long enough. Returns its first cell and its address.
    pub(super) fn take(&mut self, bytes: u64) -> Option<(u32, DeviceAddr)> {
        let wanted = u16::try_from(bytes.div_ceil(CELL)).ok()?;
        let cells = self.shortest_from(wanted)?;
        let free = Run {
            first: self.lists[usize::from(cells)],
            cells,
        };
        let slab = self.slabs[free.slab()]?;
        self.unlink(free);
        let block = Run {
            cells: wanted,
            ..free
        };
        self.mark(block, false);
        if cells > wanted {
            self.link(Run {
                first: block.last() + 1,
                cells: cells - wanted,
            });
        }
        let in_slab = u64::from(block.first % CELLS as u32) * CELL;
        self.blocks += 1;
        Some((block.first, slab.addr.offset(in_slab)))
    }

    /// Frees the block that begins at a cell and merges it with its free neighbours. Returns its slab if that is empty
    /// and another one is, too.
    pub(super) fn give(&mut self, first: u32) -> Option<Slab> {
        self.blocks -= 1;
        let mut run = self.run_from(first);
        if !first.is_multiple_of(CELLS as u32) && self.cell(first - 1).is_free {
            let cells = self.cell(first - 1).cells;
            let before = Run {
                first: first - u32::from(cells),
                cells,
            };
            self.unlink(before);
            run.first = before.first;
            run.cells += cells;
        }
        let end = run.last() + 1;
        if !end.is_multiple_of(CELLS as u32) && self.cell(end).is_free {
            let behind = self.run_from(end);
            self.unlink(behind);
            run.cells += behind.cells;
        }
        self.link(run);
        (run.is_whole_slab() && self.empty > 1)
            .then(|| self.remove(run))
            .flatten()
    }

    /// Adds an empty slab.
    pub(super) fn add(&mut self, slab: Slab) {
        if self.lists.is_empty() {
            self.lists = vec![NONE; CELLS + 1];
            self.lengths = vec![0; CELLS / 64 + 1];
        }
        let number = match self.slabs.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.slabs.push(None);
                self.cells.resize(self.slabs.len() * CELLS, Cell::UNUSED);
                self.slabs.len() - 1
            }
        };
        self.slabs[number] = Some(slab);
        self.link(Run {
            first: (number * CELLS) as u32,
            cells: CELLS as u16,
        });
    }

    /// Removes an empty slab, if there is one.
    pub(super) fn take_empty(&mut self) -> Option<Slab> {
        let &first = self.lists.last()?;
        (first != NONE)
            .then(|| self.remove(self.run_from(first)))
            .flatten()
    }

    /// All slabs.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slab> {
        self.slabs.iter().filter_map(|&slab| slab)
    }

    fn remove(&mut self, slab: Run) -> Option<Slab> {
        self.unlink(slab);
        self.slabs[slab.slab()].take()
    }

    fn cell(&mut self, index: u32) -> &mut Cell {
        &mut self.cells[index as usize]
    }

    fn run_from(&self, first: u32) -> Run {
        let cells = self.cells[first as usize].cells;
        Run { first, cells }
    }

    /// The length of the shortest free runs of at least this length.
    fn shortest_from(&self, cells: u16) -> Option<u16> {
        let (first, bit) = (usize::from(cells) / 64, cells % 64);
        let in_first = self.lengths.get(first)? & (u64::MAX << bit);
        let (word, bits) = if in_first != 0 {
            (first, in_first)
        } else {
            let later = self.words & (u128::MAX << (first + 1));
            let word = later.trailing_zeros() as usize;
            (word, *self.lengths.get(word)?)
        };
        u16::try_from(word * 64 + bits.trailing_zeros() as usize).ok()
    }

    /// Notes the length of a run at its ends.
    fn mark(&mut self, run: Run, is_free: bool) {
        for end in [run.first, run.last()] {
            let cell = self.cell(end);
            cell.cells = run.cells;
            cell.is_free = is_free;
        }
    }

    /// Adds a free run to its list.
    fn link(&mut self, run: Run) {
        self.mark(run, true);
        let length = usize::from(run.cells);
        let next = std::mem::replace(&mut self.lists[length], run.first);
        if next != NONE {
            self.cell(next).previous = run.first;
        }
        let cell = self.cell(run.first);
        (cell.previous, cell.next) = (NONE, next);
        self.lengths[length / 64] |= 1 << (length % 64);
        self.words |= 1 << (length / 64);
        self.empty += u32::from(run.is_whole_slab());
    }

    /// Removes a free run from its list.
    fn unlink(&mut self, run: Run) {
        let length = usize::from(run.cells);
        let Cell { previous, next, .. } = *self.cell(run.first);
        match previous {
            NONE => self.lists[length] = next,
            _ => self.cell(previous).next = next,
        }
        if next != NONE {
            self.cell(next).previous = previous;
        }
        if self.lists[length] == NONE {
            let word = &mut self.lengths[length / 64];
            *word &= !(1 << (length % 64));
            if *word == 0 {
                self.words &= !(1 << (length / 64));
            }
        }
        self.empty -= u32::from(run.is_whole_slab());
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let mut blocks = 0;
        for (number, _) in self
            .slabs
            .iter()
            .enumerate()
            .filter(|(_, slab)| slab.is_some())
        {
            let mut first = number * CELLS;
            let mut is_free_before = false;
            while first < (number + 1) * CELLS {
                let run = self.run_from(first as u32);
                let is_free = self.cells[first].is_free;
                ensure!(run.cells > 0, "an empty run at cell {first}");
                ensure!(
                    !(is_free && is_free_before),
                    "free runs touch at cell {first}"
                );
                blocks += u32::from(!is_free);
                is_free_before = is_free;
                first = run.last() as usize + 1;
            }
            ensure!(
                first == (number + 1) * CELLS,
                "a run reaches beyond slab {number}"
            );
        }
        ensure!(
            blocks == self.blocks,
            "{blocks} blocks in slabs, {} counted",
            self.blocks
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_do_not_overlap_and_fit_best(
            ops in prop::collection::vec((1_u64..=512, any::<prop::sample::Index>(), any::<bool>()), 0..200),
        ) {
            let (mut slabs, mut live) = (Slabs::default(), Vec::<(u64, u64)>::new());
            let mut first_cells = HashMap::new();
            for start in [0, 3 * SLAB] {
                slabs.add(Slab { addr: DeviceAddr(start), place: Place::Home(start) });
            }
            for (cells, victim, frees) in ops {
                let bytes = cells * CELL;
                if frees && !live.is_empty() {
                    let (addr, _) = live.swap_remove(victim.index(live.len()));
                    if let Some(slab) = slabs.give(first_cells[&addr]) {
                        prop_assert!(live.iter().all(|&(addr, _)| addr / (3 * SLAB) != slab.addr.0 / (3 * SLAB)));
                        slabs.add(slab);
                    }
                } else {
                    let gaps = gaps(&mut live);
                    let smallest = gaps.iter().map(|gap| gap.1).filter(|gap| *gap >= bytes).min();
                    let taken = slabs.take(bytes);
                    prop_assert_eq!(taken.is_some(), smallest.is_some());
                    if let Some((first, DeviceAddr(addr))) = taken {
                        first_cells.insert(addr, first);
                        let gap = gaps.iter().find(|gap| gap.0 == addr).map(|gap| gap.1);
                        prop_assert_eq!(gap, smallest, "the block begins a gap that fits best");
                        live.push((addr, bytes));
                    }
                }
                slabs.check().unwrap();
            }
        }
    }

    /// The free bytes between the blocks of two slabs, one at 0 and one at 3 × [`SLAB`].
    fn gaps(live: &mut [(u64, u64)]) -> Vec<(u64, u64)> {
        live.sort_unstable();
        let mut gaps = Vec::new();
        for slab in [0, 3 * SLAB] {
            let mut from = slab;
            let inside = live
                .iter()
                .filter(|(addr, _)| (slab..slab + SLAB).contains(addr));
            for &(addr, bytes) in inside {
                gaps.push((from, addr - from));
                from = addr + bytes;
            }
            gaps.push((from, slab + SLAB - from));
        }
        gaps.retain(|gap| gap.1 > 0);
        gaps
    }
}
