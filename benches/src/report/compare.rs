//! Compares two tables of results row by row.
//!
//! Deterministic figures are compared exactly. Timings are compared by rank (Mann–Whitney); an interval of the ratio
//! of their medians says by how much they differ.

use std::collections::BTreeMap;

use crate::measure::record::{KEY, Key, PROVENANCE, Row, TIMING, fields};
use crate::measure::statistics::{Estimate, p_value, ratio_interval};

/// The changes that a comparison allows, as shares: 0.05 is 5 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Of deterministic figures, in either direction.
    pub exact: f64,
    /// Increase of the time for a malloc and its free.
    pub time: f64,
}

/// p-value below which timings differ significantly.
pub const SIGNIFICANT: f64 = 0.01;

/// The differences between two tables.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Rows in both tables.
    pub common: usize,
    /// Keys of rows in the old table only.
    pub lost: Vec<String>,
    /// Keys of rows in the new table only.
    pub added: Vec<String>,
    /// Changed figures, in the order of the new table.
    pub changes: Vec<Change>,
    /// Timings that differ significantly.
    pub timings: Vec<Timing>,
    /// Rows with timings in both tables.
    pub timed: usize,
}

/// A changed figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The key of its row.
    pub key: String,
    /// Its column.
    pub column: String,
    /// The old value.
    pub old: String,
    /// The new value.
    pub new: String,
}

impl Change {
    /// The relative growth of a number; `None` if the figure is not a number or was 0.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        let (old, new): (f64, f64) = (self.old.parse().ok()?, self.new.parse().ok()?);
        (old != 0.0).then(|| (new - old) / old)
    }

    /// Whether the growth is known and within the limit.
    #[must_use]
    pub fn is_within(&self, limit: f64) -> bool {
        self.growth().is_some_and(|growth| growth.abs() <= limit)
    }
}

/// A timing that differs significantly.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// The key of its row.
    pub key: String,
    /// The ratio of new to old.
    pub ratio: Estimate,
    /// The p-value of the difference.
    pub p: f64,
}

impl Comparison {
    /// Compares two tables.
    ///
    /// # Errors
    /// If a row cannot be serialized, which does not happen for rows that were read.
    pub fn of(old: &[Row], new: &[Row]) -> anyhow::Result<Self> {
        let mut before: BTreeMap<Key, &Row> = old.iter().map(|row| (row.key(), row)).collect();
        let mut comparison = Self::default();
        for row in new {
            match before.remove(&row.key()) {
                Some(was) => comparison.compare(was, row)?,
                None => comparison.added.push(row.key().join(", ")),
            }
        }
        comparison.lost = before.into_keys().map(|key| key.join(", ")).collect();
        Ok(comparison)
    }

    fn compare(&mut self, old: &Row, new: &Row) -> anyhow::Result<()> {
        self.common += 1;
        let key = new.key().join(", ");
        let (columns, was) = fields(old)?;
        let (_, is) = fields(new)?;
        for ((column, old), new) in columns.iter().zip(&was).zip(&is) {
            let is_measure = ![&KEY[..], &TIMING, &PROVENANCE].concat().contains(&column);
            if is_measure && old != new {
                self.changes.push(Change {
                    key: key.clone(),
                    column: column.to_owned(),
                    old: old.to_owned(),
                    new: new.to_owned(),
                });
            }
        }
        let (was, is) = (samples(old), samples(new));
        if let (Some(ratio), Some(p)) = (ratio_interval(&was, &is), p_value(&was, &is)) {
            self.timed += 1;
            if p < SIGNIFICANT {
                self.timings.push(Timing { key, ratio, p });
            }
        }
        Ok(())
    }

    /// Whether no row is lost and no change exceeds the limits.
    #[must_use]
    pub fn is_within(&self, limits: Limits) -> bool {
        self.lost.is_empty()
            && self
                .changes
                .iter()
                .all(|change| change.is_within(limits.exact))
            && self
                .timings
                .iter()
                .all(|timing| timing.is_within(limits.time))
    }
}

impl Timing {
    /// Whether the increase may be within the limit: its interval reaches it.
    #[must_use]
    pub fn is_within(&self, limit: f64) -> bool {
        self.ratio.low <= 1.0 + limit
    }
}

fn samples(row: &Row) -> Vec<f64> {
    let samples = row.ns_per_pair_samples.split(';');
    samples.filter_map(|sample| sample.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::tests::row;

    const STRICT: Limits = Limits {
        exact: 0.0,
        time: 0.05,
    };

    fn timed(middle: u32) -> Row {
        let samples: Vec<String> = (0..15).map(|i| (middle + i * 7 % 15).to_string()).collect();
        Row {
            ns_per_pair_samples: samples.join(";"),
            ..row()
        }
    }

    #[test]
    fn rows_of_different_sweeps_can_be_equal() {
        let other = Row {
            sweep: "another".to_owned(),
            cell: 3,
            cells: 9,
            ..row()
        };
        let comparison = Comparison::of(&[row()], &[other]).unwrap();
        assert!(comparison.is_within(STRICT));
        assert_eq!((comparison.common, comparison.changes.len()), (1, 0));
    }

    #[test]
    fn every_figure_counts() {
        let worse = Row {
            peak_reserved_bytes: 2_202_009,
            retries: 1,
            ..row()
        };
        let comparison = Comparison::of(&[row()], &[worse]).unwrap();
        let changed: Vec<_> = comparison
            .changes
            .iter()
            .map(|c| c.column.as_str())
            .collect();
        assert_eq!(changed, ["peak_reserved_bytes", "retries"]);
        assert!(!comparison.is_within(STRICT));
        let reserved = &comparison.changes[0];
        assert!(reserved.is_within(0.06) && !reserved.is_within(0.04));
        assert!(
            !comparison.changes[1].is_within(1.0),
            "a change from 0 has no relative growth"
        );
    }

    #[test]
    fn a_lost_row_fails_and_an_added_row_does_not() {
        let other = Row {
            setting: "another".to_owned(),
            ..row()
        };
        let both = [row(), other];
        let comparison = Comparison::of(&both, &both[..1]).unwrap();
        assert_eq!(comparison.lost.len(), 1);
        assert!(!comparison.is_within(STRICT));
        let comparison = Comparison::of(&both[..1], &both).unwrap();
        assert_eq!(comparison.added.len(), 1);
        assert!(comparison.is_within(STRICT));
    }

    #[test]
    fn slower_fails_and_faster_or_noise_does_not() {
        let verdict = |old: u32, new: u32| {
            let comparison = Comparison::of(&[timed(old)], &[timed(new)]).unwrap();
            assert_eq!(comparison.timed, 1);
            (comparison.timings.len(), comparison.is_within(STRICT))
        };
        assert_eq!(verdict(100, 130), (1, false));
        assert_eq!(verdict(130, 100), (1, true));
        assert_eq!(verdict(100, 101), (0, true));
    }
}
