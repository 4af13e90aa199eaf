//! The figures of one policy over many programs.

use crate::measure::record::Row;
use crate::measure::statistics::median;

use super::programs::Program;

/// The way that times are relative to.
const BASELINE: &str = "pytorch";

/// Shares of many programs: 1 is the best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair {
    pub(super) mean: f64,
    pub(super) worst: f64,
}

impl Pair {
    pub(super) fn of(shares: &[f64]) -> Option<Self> {
        let worst = shares.iter().copied().reduce(f64::min)?;
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        Some(Self { mean, worst })
    }
}

/// Driver calls per thousand allocations in the second half of programs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Late {
    pub(super) median: f64,
    /// All calls per thousand of all allocations: programs of a few requests hardly count.
    pub(super) together: f64,
}

/// The figures of a policy over the programs that it serves.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figures {
    pub(super) served: usize,
    /// Peak requested / peak reserved on roomy devices.
    pub(super) efficiency: Option<Pair>,
    /// Peak requested / minimum device memory.
    pub(super) on_least: Option<Pair>,
    pub(super) late: Option<Late>,
    /// The median of the ratios to the baseline.
    pub(super) driver_time: Option<f64>,
    /// As for `driver_time`: host time for a malloc and its free, in the fastest run.
    pub(super) host_time: Option<f64>,
}

impl Figures {
    pub(super) fn of(way: &str, programs: &[&Program<'_>]) -> Self {
        let rows = || programs.iter().filter_map(|program| program.served(way));
        let efficiencies: Vec<f64> = rows().filter_map(|row| row.efficiency).collect();
        let least = programs
            .iter()
            .filter_map(|program| program.served_on_least(way));
        let on_least: Vec<f64> = least.map(on_least).collect();
        let ratio = |figure: fn(&Row) -> Option<f64>| {
            let ratios = programs.iter().filter_map(|program| {
                let own = program.served(way).and_then(figure)?;
                let base = program.served(BASELINE).and_then(figure)?;
                (base > 0.0).then(|| own / base)
            });
            median(&ratios.collect::<Vec<f64>>())
        };
        Self {
            served: rows().count(),
            efficiency: Pair::of(&efficiencies),
            on_least: Pair::of(&on_least),
            late: late(rows()),
            driver_time: ratio(|row| Some(row.driver_time_ns as f64)),
            host_time: ratio(shortest),
        }
    }
}

/// Host time of the fastest run in nanoseconds: whatever else the machine does only makes a run longer.
fn shortest(row: &Row) -> Option<f64> {
    let samples = row
        .ns_per_pair_samples
        .split(';')
        .filter_map(|sample| sample.parse().ok());
    samples.reduce(f64::min).or(row.ns_per_pair)
}

/// Peak requested / minimum device memory, of a row with that device.
pub(super) fn on_least(row: &Row) -> f64 {
    row.lower_bound_bytes as f64 / row.capacity_bytes.max(1) as f64
}

/// What is requested or kept by private pools at its peak / peak reserved. None if requests failed.
pub(super) fn of_what_must_be(row: &Row) -> Option<f64> {
    let bytes = row.lower_bound_with_pools_bytes?;
    row.efficiency?;
    Some(bytes as f64 / row.peak_reserved_bytes.max(1) as f64)
}

fn late<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Option<Late> {
    let shares: Vec<f64> = rows
        .clone()
        .filter_map(|row| row.late_calls_per_1000)
        .collect();
    let calls: u64 = rows.clone().filter_map(|row| row.late_calls).sum();
    // The second half.
    let allocations: u64 = rows.map(|row| row.allocations / 2).sum();
    Some(Late {
        median: median(&shares)?,
        together: 1000.0 * calls as f64 / allocations.max(1) as f64,
    })
}
