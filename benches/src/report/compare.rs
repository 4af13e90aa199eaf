//! Compares two tables of results row by row.
//!
//! Deterministic figures are compared exactly. Timings are compared by rank (Mann–Whitney); an interval of the ratio
//! of their medians says by how much they differ. [`columns`] knows which direction of a figure is better.

pub mod columns;

use std::collections::BTreeMap;

use anyhow::ensure;
use schemars::JsonSchema;
use serde::Serialize;

use self::columns::{Allowance, Allowed, Better};
use crate::measure::record::{Row, RowName, fields};
use crate::measure::statistics::{p_value, ratio_interval};

/// The changes that do not make a comparison fail.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// Changes for the worse, and changes of figures without a better direction. The last one for a column counts.
    pub allowed: Vec<Allowed>,
    /// Increase of the time for a malloc and its free, as a share.
    pub time: f64,
    /// Whether everything but times must be equal: improvements and new rows fail, and `allowed` has no effect.
    pub is_exact: bool,
}

/// p-value below which timings differ significantly.
pub const SIGNIFICANT: f64 = 0.01;

/// The differences between two tables.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Comparison {
    /// The number of this format.
    format: u32,
    /// Whether the comparison fails: a difference is not allowed.
    pub fails: bool,
    /// Rows in both tables.
    pub common: usize,
    /// Rows in the old table only.
    pub lost: Vec<RowName>,
    /// Rows in the new table only.
    pub added: Vec<RowName>,
    /// Changed figures, in the order of the new table.
    pub changes: Vec<Change>,
    /// Timings that differ significantly.
    pub timings: Vec<Timing>,
    /// Rows with timings in both tables.
    pub timed: usize,
}

/// A changed figure.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Change {
    /// Its row.
    pub row: RowName,
    /// Its column.
    pub column: String,
    /// The old value; empty if there was none.
    pub old: String,
    /// The new value; empty if there is none.
    pub new: String,
    /// The relative growth of a number; none if the figure is not a number or was 0.
    pub growth: Option<f64>,
    /// The effect of the change.
    pub effect: Effect,
    /// Whether it makes the comparison fail.
    pub fails: bool,
}

/// The effect of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The new figure is better.
    Better,
    /// The new figure is worse.
    Worse,
    /// The column has no better direction.
    Other,
    /// Not judged: more or fewer requests fail, or the minimum device memory or the largest batch is another, so that
    /// the old and the new figure describe different runs.
    Unjudged,
}

impl Change {
    fn of(column: &str, old: (&str, &Row), new: (&str, &Row), limits: &Limits) -> Option<Self> {
        let ((old, was), (new, is)) = (old, new);
        let better = columns::better(column, is).filter(|_| old != new)?;
        if columns::is_lacked(column, old) || columns::is_lacked(column, new) {
            return None;
        }
        let deciding = columns::deciding(was, is);
        let is_judged =
            columns::says_what_was_run(column) || deciding.is_none_or(|name| name == column);
        let number = |text: &str| text.parse::<f64>().ok();
        let order = match (number(old), number(new)) {
            (Some(old), Some(new)) => old.partial_cmp(&new),
            // No failure, or no reason why the policy does not support the workload.
            _ if old.is_empty() || new.is_empty() => Some(old.len().cmp(&new.len())),
            _ => None,
        };
        let is_better = order.map(|order| order.is_lt() == (better == Better::Higher));
        let effect = match (is_judged, better, is_better) {
            (false, ..) => Effect::Unjudged,
            (_, Better::Neither, _) | (.., None) => Effect::Other,
            (.., Some(true)) => Effect::Better,
            (.., Some(false)) => Effect::Worse,
        };
        let growth = number(old).zip(number(new)).filter(|(old, _)| *old != 0.0);
        let mut change = Self {
            row: is.key(),
            column: column.to_owned(),
            old: old.to_owned(),
            new: new.to_owned(),
            growth: growth.map(|(old, new)| (new - old) / old),
            effect,
            fails: true,
        };
        change.fails = limits.is_exact
            || matches!(effect, Effect::Worse | Effect::Other) && !change.is_allowed(limits);
        Some(change)
    }

    fn is_allowed(&self, limits: &Limits) -> bool {
        let of = |column: Option<&str>| {
            let mut allowed = limits.allowed.iter().rev();
            allowed.find(|allowed| allowed.column.as_deref() == column)
        };
        let allowed = of(Some(&self.column)).or_else(|| of(None));
        match allowed.map(|allowed| allowed.allowance) {
            None => false,
            Some(Allowance::Share(share)) => self.growth.is_some_and(|by| by.abs() <= share),
            Some(Allowance::Number(number)) => {
                let (old, new) = (self.old.parse::<f64>(), self.new.parse::<f64>());
                old.is_ok_and(|old| new.is_ok_and(|new| (new - old).abs() <= number))
            }
        }
    }
}

/// A timing that differs significantly.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Timing {
    /// Its row.
    pub row: RowName,
    /// The ratio of new to old.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The p-value of the difference.
    pub p: f64,
    /// Whether it makes the comparison fail: the whole interval is above what is allowed.
    pub fails: bool,
}

impl Comparison {
    /// Compares two tables.
    ///
    /// # Errors
    /// If the tables have no common row. If a row cannot be serialized, which does not happen for rows that were
    /// read.
    pub fn of(old: &[Row], new: &[Row], limits: &Limits) -> anyhow::Result<Self> {
        let mut before: BTreeMap<RowName, &Row> = old.iter().map(|row| (row.key(), row)).collect();
        let mut comparison = Self {
            format: 1,
            fails: false,
            common: 0,
            lost: Vec::new(),
            added: Vec::new(),
            changes: Vec::new(),
            timings: Vec::new(),
            timed: 0,
        };
        for row in new {
            match before.remove(&row.key()) {
                Some(was) => comparison.compare(was, row, limits)?,
                None => comparison.added.push(row.key()),
            }
        }
        comparison.lost = before.into_values().map(Row::key).collect();
        let first = |names: &[RowName]| names.first().map_or_else(String::new, RowName::to_string);
        ensure!(
            comparison.common > 0,
            "the tables have no common row; the first are '{}' and '{}'",
            first(&comparison.lost),
            first(&comparison.added)
        );
        comparison.fails = !comparison.lost.is_empty()
            || limits.is_exact && !comparison.added.is_empty()
            || comparison.changes.iter().any(|change| change.fails)
            || comparison.timings.iter().any(|timing| timing.fails);
        Ok(comparison)
    }

    fn compare(&mut self, old: &Row, new: &Row, limits: &Limits) -> anyhow::Result<()> {
        self.common += 1;
        let (columns, was) = fields(old)?;
        let (_, is) = fields(new)?;
        let figures = columns.iter().zip(was.iter().zip(&is));
        let changes = figures
            .filter_map(|(column, (was, is))| Change::of(column, (was, old), (is, new), limits));
        self.changes.extend(changes);
        let (was, is) = (samples(old), samples(new));
        if let (Some(ratio), Some(p)) = (ratio_interval(&was, &is), p_value(&was, &is)) {
            self.timed += 1;
            if p < SIGNIFICANT {
                self.timings.push(Timing {
                    row: new.key(),
                    ratio: ratio.value,
                    low: ratio.low,
                    high: ratio.high,
                    p,
                    fails: ratio.low > 1.0 + limits.time,
                });
            }
        }
        Ok(())
    }

    /// The comparison with only those differences that make it fail.
    #[must_use]
    pub fn only_failing(mut self, limits: &Limits) -> Self {
        if !limits.is_exact {
            self.added.clear();
        }
        self.changes.retain(|change| change.fails);
        self.timings.retain(|timing| timing.fails);
        self
    }
}

fn samples(row: &Row) -> Vec<f64> {
    let samples = row.ns_per_pair_samples.split(';');
    samples.filter_map(|sample| sample.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
