//! What a change of a column means.

use std::str::FromStr;

use anyhow::{Context, bail};
use coalesce_workloads::catalog::Unknown;

use crate::measure::record::{KEY, LACKED, PROVENANCE, Row, TIMING};

/// The better direction of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less memory, fewer failures, less work.
    Lower,
    /// More of the memory used, more served.
    Higher,
    /// Neither: the column describes what was run, so that any change may be a mistake.
    Neither,
}

/// The compared columns. An empty figure is below every number: a first failure that does not exist.
pub const COLUMNS: [(&str, Better); 53] = [
    ("conf", Better::Neither),
    ("capacity_bytes", Better::Neither),
    ("family", Better::Neither),
    ("unsupported", Better::Lower),
    ("events", Better::Neither),
    ("allocations", Better::Neither),
    ("lower_bound_bytes", Better::Neither),
    ("streams", Better::Neither),
    ("pools", Better::Neither),
    ("lower_bound_with_pools_bytes", Better::Neither),
    ("peak_requested_bytes", Better::Neither),
    ("peak_allocated_bytes", Better::Lower),
    ("peak_active_bytes", Better::Lower),
    ("peak_reserved_bytes", Better::Lower),
    ("peak_inactive_split_bytes", Better::Lower),
    ("inactive_split_at_peak_bytes", Better::Lower),
    ("efficiency", Better::Higher),
    ("fragmentation", Better::Lower),
    ("retries", Better::Lower),
    ("ooms", Better::Lower),
    ("skipped_frees", Better::Lower),
    ("first_oom_event", Better::Higher),
    ("shatter_at_oom", Better::Lower),
    ("fails_above_bytes", Better::Lower),
    ("largest_batch", Better::Higher),
    ("device_allocs", Better::Lower),
    ("device_frees", Better::Lower),
    ("syncs", Better::Lower),
    ("driver_calls_per_1000", Better::Lower),
    ("late_calls", Better::Lower),
    ("late_calls_per_1000", Better::Lower),
    ("steps", Better::Neither),
    ("quiet_from_step", Better::Lower),
    ("late_calls_per_step", Better::Lower),
    ("driver_time_ns", Better::Lower),
    ("profile", Better::Neither),
    ("calls_malloc", Better::Lower),
    ("calls_free", Better::Lower),
    ("calls_memory_info", Better::Lower),
    ("calls_reserve", Better::Lower),
    ("calls_free_address", Better::Lower),
    ("calls_create", Better::Lower),
    ("calls_release", Better::Lower),
    ("calls_map", Better::Lower),
    ("calls_set_access", Better::Lower),
    ("calls_unmap", Better::Lower),
    ("calls_create_event", Better::Lower),
    ("calls_record_event", Better::Lower),
    ("calls_query_event", Better::Lower),
    ("calls_wait_event", Better::Lower),
    ("calls_synchronize_event", Better::Lower),
    ("calls_synchronize_stream", Better::Lower),
    ("calls_synchronize_device", Better::Lower),
];

/// Whether the capacity depends on the policy: the minimum device memory, or a multiple of it.
fn is_found(row: &Row) -> bool {
    row.capacity.starts_with("least")
}

/// The better direction of a row's column; `None` if the column is not compared.
pub(super) fn better(column: &str, row: &Row) -> Option<Better> {
    if column == "capacity_bytes" && is_found(row) {
        return Some(Better::Lower);
    }
    let known = COLUMNS.iter().find(|(name, _)| *name == column);
    known.map(|(_, better)| *better)
}

/// Whether a figure is not known because the table is older than its column.
pub(super) fn is_lacked(column: &str, figure: &str) -> bool {
    figure.is_empty() && LACKED.contains(&column)
}

/// The changed column that decides about the whole row, because the other figures then describe another run.
pub(super) fn deciding(old: &Row, new: &Row) -> Option<&'static str> {
    let decides = [
        ("unsupported", old.unsupported != new.unsupported),
        ("ooms", old.ooms != new.ooms),
        ("largest_batch", old.largest_batch != new.largest_batch),
        (
            "capacity_bytes",
            is_found(old) && old.capacity_bytes != new.capacity_bytes,
        ),
    ];
    let changed = decides.iter().find(|(_, is_changed)| *is_changed);
    changed.map(|(column, _)| *column)
}

/// Whether the column says what was run, regardless of the outcome.
pub(super) fn says_what_was_run(column: &str) -> bool {
    [
        "conf",
        "family",
        "lower_bound_bytes",
        "streams",
        "pools",
        "lower_bound_with_pools_bytes",
        "profile",
    ]
    .contains(&column)
}

/// An allowed change: of all columns or of one.
#[derive(Clone, PartialEq, Debug)]
pub struct Allowed {
    /// The column; `None` for all that have no allowance of their own.
    pub column: Option<&'static str>,
    /// How much it may change.
    pub allowance: Allowance,
}

/// How much a figure may change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Allowance {
    /// A share of the old figure: 0.05 is 5 %.
    Share(f64),
    /// A number, in the unit of the column.
    Number(f64),
}

impl FromStr for Allowed {
    type Err = anyhow::Error;

    /// Parses `1%`, `retries=1%` or `retries=2`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let Some((column, change)) = text.split_once('=') else {
            return Ok(Self {
                column: None,
                allowance: Allowance::Share(share(text)?),
            });
        };
        let allowance = match change.parse() {
            Ok(number) if number >= 0.0 && f64::is_finite(number) => Allowance::Number(number),
            _ => Allowance::Share(share(change).context("expected a number or a percentage")?),
        };
        Ok(Self {
            column: Some(known(column)?),
            allowance,
        })
    }
}

/// A percentage such as `5%`, as a share.
///
/// # Errors
/// If the text is something else.
pub fn share(text: &str) -> anyhow::Result<f64> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse().ok());
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    let number = number.context("expected a percentage such as 5%")?;
    Ok(number / 100.0)
}

fn known(column: &str) -> anyhow::Result<&'static str> {
    if TIMING.contains(&column) {
        bail!("--allow-time is for times");
    }
    if [&KEY[..], &PROVENANCE].concat().contains(&column) {
        bail!("column '{column}' says which row it is and is not compared");
    }
    let mut names = COLUMNS.iter().map(|(name, _)| *name);
    let found = names.find(|name| *name == column);
    let unknown = || Unknown::new(column, COLUMNS.iter().map(|(name, _)| name));
    found.with_context(|| format!("no column {}", unknown()))
}
