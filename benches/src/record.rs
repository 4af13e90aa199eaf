//! What was measured: one row for each cell, flat, in a CSV.

use std::io::{Read, Write};

use anyhow::{anyhow, ensure};
use serde::{Deserialize, Serialize};

/// A row of the CSV. The columns are described in `results/README.md`; the measures are defined in
/// `workloads::measure`.
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
    /// None if it means nothing: requests failed, or nothing was held.
    pub efficiency: Option<f64>,
    pub device_allocs: u64,
    pub device_frees: u64,
    pub syncs: u64,
    pub retries: u64,
    pub ooms: u64,
    pub skipped_frees: u64,
}

impl Row {
    /// What it means on a device that may be too small: whether the workload fits, and at what price.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.ooms, self.retries) {
            (0, 0) => Verdict::Fits,
            (0, retries) => Verdict::FitsWithRetries(retries),
            (ooms, _) => Verdict::Fails(ooms),
        }
    }
}

/// Whether a workload fits into a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Fits,
    /// It does, though all cached memory had to be returned so many times.
    FitsWithRetries(u64),
    /// So many requests failed; a program ends at the first.
    Fails(u64),
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
/// The first line that is no row, with its number and the column; or that there are no rows.
pub fn read(source: impl Read) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(source);
    let columns = reader.headers()?.clone();
    let mut rows: Vec<Row> = Vec::new();
    for (line, row) in (2..).zip(reader.deserialize()) {
        let row: Row = row.map_err(|error| explain(error, line, &columns))?;
        let plausible = row
            .efficiency
            .is_none_or(|share| (0.0..=1.0).contains(&share));
        ensure!(plausible, "line {line}: an efficiency is between 0 and 1");
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "it has no rows of results");
    Ok(rows)
}

/// The error with the name of the column in which it is.
fn explain(error: csv::Error, line: u64, columns: &csv::StringRecord) -> anyhow::Error {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return error.into();
    };
    let column = err.field().and_then(|field| columns.get(field as usize));
    let column = column.map_or_else(String::new, |name| format!(", column {name}"));
    anyhow!("line {line}{column}: {}", err.kind())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of 2 MiB for 1, with 6 of whatever is counted.
    pub(crate) fn row() -> Row {
        Row {
            workload: "a, \"b\"".to_owned(),
            policy: "pytorch".to_owned(),
            setting: "default".to_owned(),
            conf: String::new(),
            capacity_bytes: u64::MAX,
            address_policy: "up".to_owned(),
            events: 6,
            allocations: 6,
            peak_requested_bytes: 1 << 20,
            peak_allocated_bytes: 1 << 20,
            peak_active_bytes: 1 << 20,
            peak_reserved_bytes: 2 << 20,
            peak_inactive_split_bytes: 0,
            efficiency: Some(0.5),
            device_allocs: 6,
            device_frees: 0,
            syncs: 0,
            retries: 0,
            ooms: 0,
            skipped_frees: 0,
        }
    }

    fn written(rows: &[Row]) -> String {
        let mut text = Vec::new();
        write(rows, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let failed = Row {
            efficiency: None,
            ooms: 1,
            ..row()
        };
        let rows = [row(), failed];
        assert_eq!(read(written(&rows).as_bytes()).unwrap(), rows);
    }

    #[test]
    fn what_is_no_table_of_results_is_refused() {
        let good = written(&[row()]);
        let header = good.lines().next().unwrap();
        for (text, said) in [
            (String::new(), "no rows"),
            (format!("{header}\n"), "no rows"),
            ("workload\nx\n".to_owned(), "missing field"),
            (good.replace(",0.5,", ",NaN,"), "line 2: an efficiency"),
            (good.replace(",0.5,", ",7,"), "line 2: an efficiency"),
            (good.replace(",0.5,", ",half,"), "line 2, column efficiency"),
            (format!("{good}x,y\n"), "record 2 (line: 3"),
        ] {
            let error = format!("{:#}", read(text.as_bytes()).unwrap_err());
            assert!(error.contains(said), "no '{said}' in: {error}");
        }
    }
}
