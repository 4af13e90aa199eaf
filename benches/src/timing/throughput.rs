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
    let mut allocator = cell.allocator(row.capacity_bytes)?;
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
    let Some(Estimate { value, low, high }) = median_interval(&samples) else {
        return Ok(row);
    };
    let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
    let texts: Vec<String> = samples.iter().map(|ns| format!("{ns:.1}")).collect();
    Ok(Row {
        ns_per_pair: Some(tenths(value)),
        ns_per_pair_low: Some(tenths(low)),
        ns_per_pair_high: Some(tenths(high)),
        ns_per_pair_samples: texts.join(";"),
        ..row
    })
}
