//! Results: a CSV with one row for each cell.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{Read, Write};

use anyhow::{Context, anyhow, ensure};
use coalesce_alloc::printable::{cell, of_cell, printable};
use coalesce_workloads::formats::source::Source;
use csv::StringRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A row of the CSV. The columns are described in `results/COLUMNS.md`; the measures are defined in
/// `coalesce_workloads::measure`.
#[derive(Clone, PartialEq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[allow(missing_docs, reason = "described where they are defined")]
pub struct Row {
    // The key.
    pub workload: String,
    pub seed: Option<u64>,
    pub policy: String,
    pub setting: String,
    pub capacity: String,
    pub address_policy: String,
    /// The release of PyTorch that the policy `pytorch` reproduces.
    #[serde(default)]
    pub torch: String,
    // The settings string and the capacity in bytes.
    pub conf: String,
    pub capacity_bytes: u64,
    // The workload.
    pub family: String,
    /// The feature that the policy does not support, so that nothing could be measured.
    pub unsupported: String,
    pub events: u64,
    pub allocations: u64,
    pub lower_bound_bytes: u64,
    #[serde(default)]
    pub streams: Option<u64>,
    #[serde(default)]
    pub pools: Option<u64>,
    #[serde(default)]
    pub lower_bound_with_pools_bytes: Option<u64>,
    // Memory.
    pub peak_requested_bytes: u64,
    /// `None` for a library, which does not tell the sizes of its blocks.
    pub peak_allocated_bytes: Option<u64>,
    /// As for `peak_allocated_bytes`.
    pub peak_active_bytes: Option<u64>,
    pub peak_reserved_bytes: u64,
    /// As for `peak_allocated_bytes`.
    pub peak_inactive_split_bytes: Option<u64>,
    /// As for `peak_allocated_bytes`.
    pub inactive_split_at_peak_bytes: Option<u64>,
    /// `None` if requests failed or nothing was reserved.
    pub efficiency: Option<f64>,
    /// As for `efficiency` and `peak_allocated_bytes`.
    pub fragmentation: Option<f64>,
    // Out of memory.
    pub retries: u64,
    pub ooms: u64,
    pub skipped_frees: u64,
    pub first_oom_event: Option<u64>,
    pub shatter_at_oom: Option<f64>,
    pub fails_above_bytes: Option<u64>,
    pub largest_batch: Option<u64>,
    // Driver calls.
    pub device_allocs: u64,
    pub device_frees: u64,
    pub syncs: u64,
    pub driver_calls_per_1000: Option<f64>,
    #[serde(default)]
    pub late_calls: Option<u64>,
    #[serde(default)]
    pub late_calls_per_1000: Option<f64>,
    #[serde(default)]
    pub steps: Option<u64>,
    #[serde(default)]
    pub quiet_from_step: Option<u64>,
    #[serde(default)]
    pub late_calls_per_step: Option<f64>,
    pub driver_time_ns: u64,
    pub profile: String,
    pub calls_malloc: u64,
    pub calls_free: u64,
    pub calls_memory_info: u64,
    pub calls_reserve: u64,
    pub calls_free_address: u64,
    pub calls_create: u64,
    pub calls_release: u64,
    pub calls_map: u64,
    pub calls_set_access: u64,
    pub calls_unmap: u64,
    pub calls_create_event: u64,
    pub calls_record_event: u64,
    pub calls_query_event: u64,
    pub calls_wait_event: u64,
    pub calls_synchronize_event: u64,
    pub calls_synchronize_stream: u64,
    pub calls_synchronize_device: u64,
    // Timings, which differ in every run.
    pub ns_per_pair: Option<f64>,
    pub ns_per_pair_low: Option<f64>,
    pub ns_per_pair_high: Option<f64>,
    pub ns_per_pair_samples: String,
    // Provenance.
    pub sweep: String,
    pub cell: u64,
    pub cells: u64,
}

/// The columns that differ in every run.
pub const TIMING: [&str; 4] = [
    "ns_per_pair",
    "ns_per_pair_low",
    "ns_per_pair_high",
    "ns_per_pair_samples",
];

/// The columns that identify a row.
pub const KEY: [&str; 7] = [
    "workload",
    "seed",
    "policy",
    "setting",
    "capacity",
    "address_policy",
    "torch",
];

/// The columns that identify a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, JsonSchema, Serialize)]
#[allow(missing_docs, reason = "results/COLUMNS.md describes the columns")]
pub struct RowName {
    pub workload: String,
    pub seed: Option<u64>,
    pub policy: String,
    pub setting: String,
    pub capacity: String,
    pub address_policy: String,
    pub torch: String,
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map_or_else(String::new, |seed| seed.to_string());
        let texts = [
            &self.workload,
            &seed,
            &self.policy,
            &self.setting,
            &self.capacity,
            &self.address_policy,
            &self.torch,
        ];
        f.write_str(&texts.map(|text| printable(text).to_string()).join(", "))
    }
}

/// The columns for the sweep that a row belongs to.
pub const PROVENANCE: [&str; 3] = ["sweep", "cell", "cells"];

/// The columns that have a value even if nothing could be measured.
const STATED: [&str; 8] = [
    "conf",
    "family",
    "unsupported",
    "lower_bound_bytes",
    "streams",
    "pools",
    "lower_bound_with_pools_bytes",
    "profile",
];

/// The columns that older tables lack. Where one of them is empty, the figure is not known.
pub const LACKED: [&str; 8] = [
    "streams",
    "pools",
    "lower_bound_with_pools_bytes",
    "late_calls",
    "late_calls_per_1000",
    "steps",
    "quiet_from_step",
    "late_calls_per_step",
];

/// Whether the column has a value even if nothing could be measured.
#[must_use]
pub fn is_stated(column: &str) -> bool {
    [&KEY[..], &PROVENANCE, &STATED].concat().contains(&column)
}

/// The release in tables without the column `torch`.
const RELEASE_WITHOUT_COLUMN: &str = "2.11";

/// The name of the reference among the policies.
pub const REFERENCE: &str = "pytorch";

/// The family of recorded traces.
pub const RECORDED: &str = "recorded";

/// Rounds to six digits, so that files are easy to compare.
#[must_use]
pub fn six_digits(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

impl Row {
    /// Whether the workload fits, and with how many retries.
    #[must_use]
    pub fn fit(&self) -> Fit {
        if !self.is_measured() {
            return Fit::Unsupported;
        }
        match (self.ooms, self.retries) {
            (0, 0) => Fit::Fits,
            (0, retries) => Fit::FitsWithRetries(retries),
            (ooms, _) => Fit::Fails(ooms),
        }
    }

    /// Peak reserved / peak requested.
    #[must_use]
    pub fn reserved_of_requested(&self) -> f64 {
        self.peak_reserved_bytes as f64 / self.lower_bound_bytes.max(1) as f64
    }

    /// Whether the cell was measured: the policy supports the workload.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.unsupported.is_empty()
    }

    /// Whether both rows are of the same workload on the same device, and of the same release if they are of the same
    /// policy.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.workload == other.workload
            && self.seed == other.seed
            && self.capacity == other.capacity
            && self.address_policy == other.address_policy
            && (self.policy != other.policy || self.torch == other.torch)
    }

    /// What identifies the row.
    #[must_use]
    pub fn key(&self) -> RowName {
        RowName {
            workload: self.workload.clone(),
            seed: self.seed,
            policy: self.policy.clone(),
            setting: self.setting.clone(),
            capacity: self.capacity.clone(),
            address_policy: self.address_policy.clone(),
            torch: self.torch.clone(),
        }
    }
}

/// Whether a workload fits into a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The workload fits without retries.
    Fits,
    /// It fits, and all cached memory was returned this many times.
    FitsWithRetries(u64),
    /// This many requests failed.
    Fails(u64),
    /// The policy does not support the workload.
    Unsupported,
}

/// Writes rows as a CSV with column names. Its texts are [cells](cell), so that no name in it is a formula of a
/// spreadsheet or has control characters.
///
/// # Errors
/// If `out` cannot be written.
pub fn write(rows: &[Row], out: impl Write) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    for (number, row) in rows.iter().enumerate() {
        let (columns, fields) = fields(row)?;
        if number == 0 {
            writer.write_record(&columns)?;
        }
        let cells: StringRecord = fields.iter().map(as_cell).collect();
        writer.write_record(&cells)?;
    }
    writer.flush()?;
    Ok(())
}

/// A value as a cell that neither a terminal nor a spreadsheet obeys. Figures stay.
pub(crate) fn as_cell(field: &str) -> Cow<'_, str> {
    match field.parse::<f64>() {
        Ok(_) => field.into(),
        Err(_) => cell(field),
    }
}

/// The columns of a row and their values. Figures that could not be measured are empty.
///
/// # Errors
/// If the row cannot be serialized, which does not happen for rows that were read.
pub(crate) fn fields(row: &Row) -> anyhow::Result<(StringRecord, StringRecord)> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.serialize(row)?;
    let text = writer.into_inner().map_err(|error| error.into_error())?;
    let mut reader = csv::Reader::from_reader(text.as_slice());
    let columns = reader.headers()?.clone();
    let mut fields = StringRecord::new();
    reader.read_record(&mut fields)?;
    if !row.is_measured() {
        let kept = |(column, field)| if is_stated(column) { field } else { "" };
        fields = columns.iter().zip(&fields).map(kept).collect();
    }
    Ok((columns, fields))
}

/// The line, with default values for the empty figures of a row that was not measured.
fn filled(line: &StringRecord, columns: &StringRecord) -> anyhow::Result<StringRecord> {
    let unsupported = columns.iter().position(|column| column == "unsupported");
    let measured = unsupported
        .and_then(|at| line.get(at))
        .is_none_or(str::is_empty);
    if measured {
        return Ok(line.clone());
    }
    let (known, blank) = fields(&Row::default())?;
    let default = |column: &str| {
        let at = known.iter().position(|name| name == column);
        at.and_then(|at| blank.get(at)).unwrap_or("")
    };
    let fill = |(column, field): (&str, &'_ str)| match field {
        "" => default(column).to_owned(),
        field => field.to_owned(),
    };
    Ok(columns
        .iter()
        .zip(line)
        .map(fill)
        .collect::<Vec<_>>()
        .into())
}

/// Reads the rows of a CSV. Unknown columns are ignored.
///
/// # Errors
/// If a line is not a row (with line number and column), two rows are of the same cell, or there are no rows.
pub fn read(source: impl Read) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(source);
    let columns = reader.headers()?.clone();
    let has_release = columns.iter().any(|column| column == "torch");
    let mut rows: Vec<Row> = Vec::new();
    let mut lines: HashMap<RowName, u64> = HashMap::new();
    for (line, record) in (2..).zip(reader.records()) {
        let record: StringRecord = record?.iter().map(of_cell).collect();
        let record = filled(&record, &columns)?;
        let mut row: Row = record
            .deserialize(Some(&columns))
            .map_err(|error| explain(error, line, &columns))?;
        if !has_release && row.policy == REFERENCE {
            RELEASE_WITHOUT_COLUMN.clone_into(&mut row.torch);
        }
        for (name, share) in [
            ("efficiency", row.efficiency),
            ("fragmentation", row.fragmentation),
        ] {
            let plausible = share.is_none_or(|share| (0.0..=1.0).contains(&share));
            ensure!(plausible, "line {line}, column {name}: not between 0 and 1");
        }
        if let Some(first) = lines.insert(row.key(), line) {
            let key = row.key();
            return Err(anyhow!(
                "line {line}: the same cell as in line {first}: {key}"
            ));
        }
        rows.push(row);
    }
    ensure!(!rows.is_empty(), "no rows of results");
    Ok(rows)
}

/// Reads the rows in a file or from standard input.
///
/// # Errors
/// As [`read`], with the name of the file.
pub fn read_file(source: impl Into<Source>) -> anyhow::Result<Vec<Row>> {
    let source = source.into();
    let bytes = source
        .read()
        .with_context(|| format!("cannot read {source}"))?;
    read(&bytes[..]).with_context(|| source.to_string())
}

/// Adds the line number and the name of the column to an error.
fn explain(error: csv::Error, line: u64, columns: &StringRecord) -> anyhow::Error {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return error.into();
    };
    let column = err.field().and_then(|field| columns.get(field as usize));
    let column = column.map_or_else(String::new, |name| format!(", column {name}"));
    anyhow!("line {line}{column}: {}", err.kind())
}

#[cfg(test)]
pub(crate) mod tests;
