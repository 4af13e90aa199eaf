//! Memory that is in use in part, for tests.

use std::collections::HashSet;

use crate::driver::sim::{SimConfig, SimDevice};
use crate::policy::free_runs::{FreeRuns, Run};
use crate::policy::undo::Undo;

use super::sizes::PAGE;
use super::units::Units;
use super::views::View;

pub(super) const KIB: u64 = 1 << 10;

#[derive(Debug)]
pub(super) struct Fragments {
    pub(super) device: SimDevice,
    pub(super) undo: Undo,
    pub(super) units: Units,
    pub(super) free: FreeRuns,
}

impl Fragments {
    /// Creates units of the sizes `PAGE << size`. The runs in `used`, positions and lengths in KiB, are in use as far as none
    /// overlaps an earlier one.
    pub(super) fn new(sizes: Vec<u32>, used: Vec<(u64, u64)>) -> Self {
        let mut device = SimDevice::new(&SimConfig::default());
        let (mut units, mut undo, mut free) =
            (Units::default(), Undo::default(), FreeRuns::default());
        for size in sizes {
            let unit = units.create(&mut device, &mut undo, PAGE << size);
            free.give(unit.unwrap().run);
        }
        for (start, bytes) in used {
            let run = Run {
                start: start * KIB,
                bytes: bytes * KIB,
            };
            if free.contains(run) {
                free.take(run);
            }
        }
        Self {
            device,
            undo,
            units,
            free,
        }
    }

    /// Takes the memory behind a block. Panics unless all of it is free, and the view has each unit once.
    pub(super) fn take_block(&mut self, view: &View, offset: u64, bytes: u64) {
        let starts: HashSet<u64> = view.units().iter().map(|unit| unit.run.start).collect();
        assert_eq!(starts.len(), view.units().len(), "a unit twice");
        assert!(offset + bytes <= view.bytes());
        let runs: Vec<Run> = view.behind(offset, bytes).collect();
        assert_eq!(runs.iter().map(|run| run.bytes).sum::<u64>(), bytes);
        for run in runs {
            assert!(self.free.contains(run), "{run:?} is in use");
            self.free.take(run);
        }
    }
}
