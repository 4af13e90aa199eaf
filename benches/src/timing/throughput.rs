//! The time for a malloc and its free, averaged over a whole workload.

use std::time::Instant;

use coalesce_alloc::error::Error;

use crate::measure::cell::Cell;
use crate::measure::record::Row;
use crate::measure::statistics::{Estimate, median_interval};
use crate::timing::walk::Walk;

/// Times the cell `runs` times after one run to warm up, and adds the figures to the row. Cells with failed requests are
/// not timed, because they skip part of the workload.
///
/// # Errors
/// As [`Cell::run`].
pub fn time(cell: &Cell<'_>, row: Row, runs: u32) -> anyhow::Result<Row> {
    if runs == 0 || row.ooms > 0 || row.allocations == 0 {
        return Ok(row);
    }
    let walk = Walk::prepare(cell.workload)?;
    let mut allocator = cell.on(row.capacity_bytes).allocator()?;
    let mut slots = walk.slots();
    let mut samples = Vec::new();
    for run in 0..=runs {
        let started = Instant::now();
        match walk.run(allocator.as_mut(), &mut slots) {
            Ok(()) => {}
            // On a tight device, memory cached by an earlier run can make the next one fail.
            Err(Error::OutOfMemory(_)) => return Ok(row),
            Err(error) => return Err(error.into()),
        }
        let ns = started.elapsed().as_nanos() as f64;
        if run > 0 {
            samples.push(ns / walk.pairs() as f64);
        }
    }
    Ok(with(row, &samples))
}

/// The row with these times for a malloc and its free, in nanoseconds.
#[must_use]
pub fn with(row: Row, samples: &[f64]) -> Row {
    let Some(Estimate { value, low, high }) = median_interval(samples).map(Estimate::in_tenths)
    else {
        return row;
    };
    let texts: Vec<String> = samples.iter().map(|ns| format!("{ns:.1}")).collect();
    Row {
        ns_per_pair: Some(value),
        ns_per_pair_low: Some(low),
        ns_per_pair_high: Some(high),
        ns_per_pair_samples: texts.join(";"),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coalesce_workloads::demand::Demand;

    use super::*;
    use crate::measure::capacity::ROOMY;
    use crate::measure::profile::{PUBLISHED, Profile};
    use crate::timing::shapes;

    /// The row of a small workload on a device, with its times.
    fn timed(name: &str, capacity: u64, runs: u32, change: impl FnOnce(&mut Row)) -> Row {
        let workload = shapes::find(name, None).unwrap().unwrap();
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let cell = Cell {
            demand: Demand::of(workload.as_ref()).unwrap(),
            ..Cell::new(workload.as_ref(), &profile).on(capacity)
        };
        let mut row = cell.measure(&mut ()).unwrap();
        change(&mut row);
        time(&cell, row, runs).unwrap()
    }

    #[test]
    fn each_run_after_the_first_is_a_sample() {
        let row = timed("hot_4KiB", ROOMY, 6, |_| {});
        let samples: Vec<f64> = row
            .ns_per_pair_samples
            .split(';')
            .map(|sample| sample.parse().unwrap())
            .collect();
        assert_eq!(samples.len(), 6);
        let [low, value, high] =
            [row.ns_per_pair_low, row.ns_per_pair, row.ns_per_pair_high].map(Option::unwrap);
        let (least, most) = samples
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), &sample| {
                (sample.min(least), sample.max(most))
            });
        assert!(0.0 < least && least <= low && low <= value && value <= high && high <= most);
        // A malloc and its free take less than a run of a thousand of them.
        assert!(most < 1e6, "{most}");
        for figure in [low, value, high] {
            assert_eq!(format!("{figure:.1}").parse(), Ok(figure));
        }
    }

    #[test]
    fn what_is_incomplete_is_not_timed() {
        let is_timed = |row: Row| row.ns_per_pair.is_some() || !row.ns_per_pair_samples.is_empty();
        assert!(!is_timed(timed("hot_4KiB", ROOMY, 0, |_| {})));
        assert!(!is_timed(timed("hot_4KiB", ROOMY, 2, |row| row.ooms = 1)));
        assert!(!is_timed(timed("hot_4KiB", ROOMY, 2, |row| row
            .allocations =
            0)));
        // A request fails in the first timed run.
        let small = |row: &mut Row| row.capacity_bytes = 4 << 20;
        assert!(!is_timed(timed("hot_4MiB", ROOMY, 2, small)));
        assert!(is_timed(timed("hot_4MiB", ROOMY, 2, |_| {})));
    }
}
