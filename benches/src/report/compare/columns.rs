//! What a change of a column means.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use coalesce_workloads::catalog::Unknown;

use crate::measure::record::{KEY, LACKED, PROVENANCE, Row, TIMING, fields};

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

/// The columns of which a higher figure is better. An empty figure, such as that of a first failure that does not exist, is
/// below every number.
const HIGHER: [&str; 3] = ["efficiency", "first_oom_event", "largest_batch"];

/// The columns without a better direction. Of all others that are compared, a lower figure is better.
const NEITHER: [&str; 12] = [
    "conf",
    "capacity_bytes",
    "family",
    "events",
    "allocations",
    "lower_bound_bytes",
    "streams",
    "pools",
    "lower_bound_with_pools_bytes",
    "peak_requested_bytes",
    "steps",
    "profile",
];

/// Whether the column is compared. The others say which row it is, or differ in every run.
fn is_compared(column: &str) -> bool {
    ![&KEY[..], &PROVENANCE, &TIMING].concat().contains(&column)
}

/// Whether the capacity depends on the policy: the minimum device memory, or a multiple of it.
fn is_found(row: &Row) -> bool {
    row.capacity.starts_with("least")
}

/// The better direction of a row's column; `None` if the column is not compared.
pub(super) fn better(column: &str, row: &Row) -> Option<Better> {
    is_compared(column).then(|| match column {
        "capacity_bytes" if is_found(row) => Better::Lower,
        _ if HIGHER.contains(&column) => Better::Higher,
        _ if NEITHER.contains(&column) => Better::Neither,
        _ => Better::Lower,
    })
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
    pub column: Option<String>,
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
    let number = number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .context("expected a percentage such as 5%")?;
    Ok(number / 100.0)
}

fn known(column: &str) -> anyhow::Result<String> {
    if TIMING.contains(&column) {
        bail!("--allow-time is for times");
    }
    if KEY.contains(&column) || PROVENANCE.contains(&column) {
        bail!("column '{column}' says which row it is and is not compared");
    }
    let (columns, _) = fields(&Row::default())?;
    let names = columns.iter().filter(|name| is_compared(name));
    ensure!(
        names.clone().any(|name| name == column),
        "no column {}",
        Unknown::new(column, names)
    );
    Ok(column.to_owned())
}
