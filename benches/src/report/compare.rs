//! Two tables of results, row by row.
//!
//! What is deterministic is compared exactly. Timings are compared by ranks: they differ if that is
//! unlikely to be chance (Mann–Whitney), and by how much says an interval of the ratio of medians.

use std::collections::BTreeMap;

use crate::measure::record::{KEY, PROVENANCE, Row, TIMING, fields};
use crate::measure::statistics::{Estimate, p_value, ratio_interval};

/// How much may change before a comparison fails, as shares: 0.05 is 5 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Of numbers that are the same in every run.
    pub exact: f64,
    /// Of the time of a malloc and its free, if it gets longer.
    pub time: f64,
}

/// Below this, a difference is not taken for chance.
pub const SIGNIFICANT: f64 = 0.01;

/// What differs between two tables.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Rows that are in both.
    pub common: usize,
    /// Keys of rows that are in the old table alone.
    pub lost: Vec<String>,
    /// Keys of rows that are in the new table alone.
    pub added: Vec<String>,
    /// Cells that changed, in the order of the new table.
    pub changes: Vec<Change>,
    /// Timings that differ by more than chance.
    pub timings: Vec<Timing>,
    /// Rows with timings on both sides.
    pub timed: usize,
}

/// A figure that is another one.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The key of its row.
    pub key: String,
    /// Its column.
    pub column: String,
    /// What it was.
    pub old: String,
    /// What it is.
    pub new: String,
}

impl Change {
    /// By how much a number grew, as a share of what it was; none if it is not a number, or was 0.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        let (old, new): (f64, f64) = (self.old.parse().ok()?, self.new.parse().ok()?);
        (old != 0.0).then(|| (new - old) / old)
    }

    /// Whether the change is within a limit.
    #[must_use]
    pub fn is_within(&self, limit: f64) -> bool {
        self.growth().is_some_and(|growth| growth.abs() <= limit)
    }
}

/// A time that is another one.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// The key of its row.
    pub key: String,
    /// The ratio of new to old.
    pub ratio: Estimate,
    /// How likely it would be by chance.
    pub p: f64,
}

impl Comparison {
    /// What differs between `old` and `new`.
    ///
    /// # Errors
    /// If a row cannot be written as one: none that was read.
    pub fn of(old: &[Row], new: &[Row]) -> anyhow::Result<Self> {
        let mut before: BTreeMap<[String; 6], &Row> =
            old.iter().map(|row| (row.key(), row)).collect();
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

    /// Whether the new table is as good as the old one: nothing is lost, and nothing changed by more
    /// than the limits allow.
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
    /// Whether it is not for sure longer than a limit allows.
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
    fn the_same_is_the_same_whoever_ran_it() {
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
            "from none to one is no small change"
        );
    }

    #[test]
    fn what_is_gone_is_a_failure_and_what_is_new_is_not() {
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
