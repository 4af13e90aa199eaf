//! One measured cell: a workload with a policy, its settings and a device. A flat row.

use std::io::{Read, Write};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use workloads::measure::Measures;
use workloads::replay::Tally;

/// A row of the CSV. The columns are described in `results/README.md`; the measures are defined in
/// [`workloads::measure`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "described where they are defined")]
pub struct Row {
    pub workload: String,
    pub policy: String,
    pub setting: String,
    pub conf: String,
    pub capacity_bytes: u64,
    pub address_policy: String,
    pub events: u64,
    pub allocations: u64,
    pub peak_requested_bytes: u64,
    pub peak_allocated_bytes: u64,
    pub peak_active_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub peak_inactive_split_bytes: u64,
    pub efficiency: f64,
    pub device_allocs: u64,
    pub device_frees: u64,
    pub syncs: u64,
    pub retries: u64,
    pub ooms: u64,
    pub skipped_frees: u64,
}

/// What a row is about.
#[derive(Clone, Debug)]
pub struct Key {
    /// The workload's name.
    pub workload: String,
    /// The policy's name.
    pub policy: String,
    /// The setting's name.
    pub setting: String,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// Bytes of the device.
    pub capacity: u64,
    /// How the device places memory.
    pub address_policy: String,
}

impl Row {
    /// The row of a run.
    #[must_use]
    pub fn new(key: Key, tally: Tally, measures: &Measures) -> Self {
        Self {
            workload: key.workload,
            policy: key.policy,
            setting: key.setting,
            conf: key.conf,
            capacity_bytes: key.capacity,
            address_policy: key.address_policy,
            events: tally.events,
            allocations: measures.allocations,
            peak_requested_bytes: measures.peak_requested_bytes,
            peak_allocated_bytes: measures.peak_allocated_bytes,
            peak_active_bytes: measures.peak_active_bytes,
            peak_reserved_bytes: measures.peak_reserved_bytes,
            peak_inactive_split_bytes: measures.peak_inactive_split_bytes,
            // Six digits: a spreadsheet shows no more, and the file stays easy to compare.
            efficiency: (measures.efficiency() * 1e6).round() / 1e6,
            device_allocs: measures.device_allocs,
            device_frees: measures.device_frees,
            syncs: measures.syncs,
            retries: measures.retries,
            ooms: measures.ooms,
            skipped_frees: tally.skipped_frees,
        }
    }
}

/// Writes rows as a CSV with column names.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(rows: &[Row], out: impl Write) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for row in rows {
        writer.serialize(row)?;
    }
    writer.flush()?;
    Ok(())
}

/// Reads the rows of a CSV.
///
/// # Errors
/// The first line that is no row, with its number.
pub fn read(source: impl Read) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(source);
    let rows = reader.deserialize().collect::<Result<_, _>>();
    rows.context("not a table of results")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let key = Key {
            workload: "a, \"b\"".to_owned(),
            policy: "pytorch".to_owned(),
            setting: "default".to_owned(),
            conf: String::new(),
            capacity: u64::MAX,
            address_policy: "up".to_owned(),
        };
        let measures = Measures {
            peak_requested_bytes: 2,
            peak_reserved_bytes: 3,
            ..Measures::default()
        };
        let row = Row::new(key, Tally::default(), &measures);
        let mut text = Vec::new();
        write(std::slice::from_ref(&row), &mut text).unwrap();
        assert_eq!(row.efficiency, 0.666_667);
        assert_eq!(read(text.as_slice()).unwrap(), [row]);
        assert!(read("workload\nx\n".as_bytes()).is_err());
    }
}
