//! The tables of results.

use std::path::Path;

use csv::StringRecord;
use serde::Serialize;

use super::Measurements;
use crate::measure::record::as_cell;
use crate::measure::results;

/// Time and memory of one cell, in nanoseconds and bytes. A cell that was not measured has no figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// The device.
    pub device: String,
    /// The workload.
    pub program: String,
    /// The policy.
    pub policy: String,
    /// The name of its settings.
    pub setting: String,
    /// The settings string.
    pub conf: String,
    /// Why the cell was not measured; empty if it was.
    pub left_out: String,
    /// Allocations in a walk; each is freed once.
    pub pairs: Option<u64>,
    /// Allocations that the first walk made in its time. If not all, there is no further walk.
    pub walked: Option<u64>,
    /// Overhead of reading the clock twice, part of each latency.
    pub clock_ns: Option<u64>,
    /// Time for a malloc and its free in further walks, until the device has completed them: median.
    pub ns_per_pair: Option<f64>,
    /// Lower end of the 95 % confidence interval.
    pub ns_per_pair_low: Option<f64>,
    /// Upper end.
    pub ns_per_pair_high: Option<f64>,
    /// The same by the clock of the device, with events before and after a walk; only of stream-ordered allocators.
    pub stream_ns_per_pair: Option<f64>,
    /// Driver calls in the first walk.
    pub driver_calls: Option<u64>,
    /// Their time.
    pub driver_ns: Option<u64>,
    /// Peak requested.
    pub peak_requested_bytes: Option<u64>,
    /// Peak reserved, by the count of the allocator.
    pub peak_reserved_bytes: Option<u64>,
    /// Peak use of the device beyond that before the first walk, by the count of the device.
    pub peak_device_bytes: Option<u64>,
    /// `peak_device_bytes` minus `peak_reserved_bytes`.
    pub difference_bytes: Option<i64>,
    /// Bytes requested from the driver at that peak, before rounding.
    pub asked_bytes: Option<u64>,
    /// Use of the device before the first walk: the context and other processes.
    pub before_bytes: Option<u64>,
}

/// Writes `cells.csv` and `latencies.csv` into a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn write(all: &Measurements, folder: &Path) -> anyhow::Result<()> {
    results::write(&folder.join("cells.csv"), &csv(&all.rows)?)?;
    results::write(&folder.join("latencies.csv"), &csv(&all.latencies)?)
}

/// Rows as CSV with a header; empty without rows. Its texts are cells, as in the tables of a sweep.
///
/// # Errors
/// If a row cannot be serialized.
pub fn csv<T: Serialize>(rows: &[T]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row))?;
    let rows = writer.into_inner().map_err(|error| error.into_error())?;
    let mut reader = csv::ReaderBuilder::new();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in reader.has_headers(false).from_reader(&*rows).records() {
        let cells: StringRecord = record?.iter().map(as_cell).collect();
        writer.write_record(&cells)?;
    }
    Ok(writer.into_inner().map_err(|error| error.into_error())?)
}

#[cfg(test)]
mod tests {
    use super::super::latency::Latency;
    use super::*;
    use crate::timing::model;

    #[test]
    fn files_md_describes_every_column() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let texts = std::fs::read_to_string(folder.join("../results/FILES.md")).unwrap();
        let tables = [
            csv(&[Row::default()]),
            csv(&[Latency::default()]),
            csv(&[model::Row::default()]),
        ];
        for table in tables {
            let text = String::from_utf8(table.unwrap()).unwrap();
            for column in text.lines().next().unwrap().split(',') {
                assert!(texts.contains(&format!("`{column}`")), "{column}");
            }
        }
    }
}
