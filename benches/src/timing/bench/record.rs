//! What is written down of a cell.

use std::path::Path;

use serde::Serialize;

use super::Measurements;
use crate::measure::results;

/// One cell: what it takes, in time and memory; bytes and nanoseconds. A cell that is left out has no
/// figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// The device.
    pub device: String,
    /// The program.
    pub program: String,
    /// The allocator.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// Its settings.
    pub conf: String,
    /// Why there are no figures, if there are none.
    pub left_out: String,
    /// Allocations in a walk, each with its free.
    pub pairs: Option<u64>,
    /// How many of them the first walk made in the time it had. If not all, there is no further walk.
    pub walked: Option<u64>,
    /// What looking at the clock twice takes: part of each latency.
    pub clock_ns: Option<u64>,
    /// For an allocation and its free, of further walks as a whole, until the device is done: the median.
    pub ns_per_pair: Option<f64>,
    /// The lower end of its interval of 95 %.
    pub ns_per_pair_low: Option<f64>,
    /// The upper end.
    pub ns_per_pair_high: Option<f64>,
    /// The same on the device's own clock, by events before and after a walk; of an allocator that works in
    /// the order of a stream.
    pub stream_ns_per_pair: Option<f64>,
    /// Calls of the driver in the first walk.
    pub driver_calls: Option<u64>,
    /// How long they took.
    pub driver_ns: Option<u64>,
    /// The most that was asked for, and given, at one time.
    pub peak_requested_bytes: Option<u64>,
    /// The most the allocator held, by its own count.
    pub peak_reserved_bytes: Option<u64>,
    /// The most the device had in use more than before the first walk, by its own count.
    pub peak_device_bytes: Option<u64>,
    /// By how much that is more than the allocator's.
    pub difference_bytes: Option<i64>,
    /// What the driver was asked for at that moment, before it rounds anything.
    pub asked_bytes: Option<u64>,
    /// What the device had in use before: the context, other processes.
    pub before_bytes: Option<u64>,
}

/// Writes all of it into a folder: `cells.csv` and `latencies.csv`.
///
/// # Errors
/// If a file cannot be written.
pub fn write(all: &Measurements, folder: &Path) -> anyhow::Result<()> {
    results::write(&folder.join("cells.csv"), &csv(&all.rows)?)?;
    results::write(&folder.join("latencies.csv"), &csv(&all.latencies)?)
}

/// Rows as a CSV with column names; of no rows, nothing.
///
/// # Errors
/// If a row cannot be written as one.
pub fn csv<T: Serialize>(rows: &[T]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    Ok(writer.into_inner().map_err(|error| error.into_error())?)
}

#[cfg(test)]
mod tests {
    use super::super::latency::Latency;
    use super::*;
    use crate::timing::model;

    /// A column nobody can look up is a number nobody can trust.
    #[test]
    fn every_column_is_described() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let readme = std::fs::read_to_string(folder.join("../results/README.md")).unwrap();
        let tables = [
            csv(&[Row::default()]),
            csv(&[Latency::default()]),
            csv(&model::rows("", "", "", 0, &[])),
        ];
        for table in tables {
            let text = String::from_utf8(table.unwrap()).unwrap();
            for column in text.lines().next().unwrap().split(',') {
                assert!(readme.contains(&format!("`{column}`")), "{column}");
            }
        }
    }
}
