//! Compares two tables of results row by row.
//!
//! Deterministic figures are compared exactly. Timings are compared by rank (Mann–Whitney); an interval of the ratio
//! of their medians says by how much they differ. [`columns`] knows which direction of a figure is better.

pub mod columns;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::ensure;
use coalesce_alloc::printable::printable;
use schemars::JsonSchema;
use serde::Serialize;

use self::columns::{Allowance, Allowed, Better};
use crate::measure::record::{Key, Row, fields};
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

/// The columns that identify a row.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
#[allow(missing_docs, reason = "results/README.md describes the columns")]
pub struct RowName {
    pub workload: String,
    pub seed: Option<u64>,
    pub policy: String,
    pub setting: String,
    pub capacity: String,
    pub address_policy: String,
    pub torch: String,
}

impl RowName {
    fn of(row: &Row) -> Self {
        Self {
            workload: row.workload.clone(),
            seed: row.seed,
            policy: row.policy.clone(),
            setting: row.setting.clone(),
            capacity: row.capacity.clone(),
            address_policy: row.address_policy.clone(),
            torch: row.torch.clone(),
        }
    }
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map_or_else(String::new, |seed| seed.to_string());
        let Self {
            workload,
            policy,
            setting,
            capacity,
            address_policy,
            torch,
            ..
        } = self;
        let (workload, policy, setting) =
            (printable(workload), printable(policy), printable(setting));
        let (capacity, address_policy, torch) = (
            printable(capacity),
            printable(address_policy),
            printable(torch),
        );
        write!(
            f,
            "{workload}, {seed}, {policy}, {setting}, {capacity}, {address_policy}, {torch}"
        )
    }
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
            row: RowName::of(is),
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
            allowed.find(|allowed| allowed.column == column)
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
        let mut before: BTreeMap<Key, &Row> = old.iter().map(|row| (row.key(), row)).collect();
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
                None => comparison.added.push(RowName::of(row)),
            }
        }
        comparison.lost = before.into_values().map(RowName::of).collect();
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
                    row: RowName::of(new),
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
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::measure::record::tests::row;
    use crate::measure::record::{KEY, PROVENANCE, TIMING};

    fn limits(allowed: &[&str]) -> Limits {
        let allowed = allowed.iter().map(|text| text.parse().unwrap());
        Limits {
            allowed: allowed.collect(),
            time: 0.05,
            is_exact: false,
        }
    }

    fn exact() -> Limits {
        Limits {
            is_exact: true,
            ..limits(&[])
        }
    }

    fn compare(old: &Row, new: &Row, limits: &Limits) -> Comparison {
        Comparison::of(from_ref(old), from_ref(new), limits).unwrap()
    }

    /// The effects of the changes of a row, by column.
    fn effects(old: &Row, new: &Row) -> Vec<(String, Effect, bool)> {
        let comparison = compare(old, new, &limits(&[]));
        let changes = comparison.changes.into_iter();
        changes
            .map(|change| (change.column, change.effect, change.fails))
            .collect()
    }

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
        let comparison = compare(&row(), &other, &exact());
        assert!(!comparison.fails);
        assert_eq!((comparison.common, comparison.changes.len()), (1, 0));
    }

    /// Also where everything must be equal: recorded tables are compared with those of a newer program.
    #[test]
    fn columns_that_one_table_lacks_are_not_compared() {
        let newer = Row {
            streams: Some(1),
            pools: Some(0),
            late_calls: Some(3),
            late_calls_per_1000: Some(1000.0),
            ..row()
        };
        for (old, new) in [(&row(), &newer), (&newer, &row())] {
            assert!(compare(old, new, &exact()).changes.is_empty());
        }
        let fewer = Row {
            late_calls: Some(2),
            ..newer.clone()
        };
        let late = "late_calls".to_owned();
        assert_eq!(effects(&newer, &fewer), [(late, Effect::Better, false)]);
    }

    #[test]
    fn every_column_is_compared_or_identifies_a_row() {
        let (columns, _) = fields(&row()).unwrap();
        for column in &columns {
            let others = [&KEY[..], &TIMING, &PROVENANCE].concat();
            let compared = columns::COLUMNS.iter().filter(|(name, _)| *name == column);
            assert_eq!(
                compared.count(),
                usize::from(!others.contains(&column)),
                "{column}"
            );
        }
    }

    #[test]
    fn figures_fail_for_the_worse_beyond_what_is_allowed() {
        let worse = Row {
            peak_reserved_bytes: 2_202_009,
            retries: 1,
            ..row()
        };
        let found = effects(&row(), &worse);
        let expected = ["peak_reserved_bytes", "retries"];
        assert_eq!(
            found,
            expected.map(|column| (column.to_owned(), Effect::Worse, true))
        );
        let failing = |allowed: &[&str]| {
            let comparison = compare(&row(), &worse, &limits(allowed));
            let failing = comparison.changes.iter().filter(|change| change.fails);
            let failing: Vec<_> = failing.map(|change| change.column.clone()).collect();
            assert_eq!(comparison.fails, !failing.is_empty());
            failing.join(" ")
        };
        assert_eq!(failing(&["4%"]), "peak_reserved_bytes retries");
        assert_eq!(
            failing(&["6%"]),
            "retries",
            "a change from 0 has no relative growth"
        );
        assert_eq!(failing(&["6%", "retries=1"]), "");
        assert_eq!(failing(&["retries=1"]), "peak_reserved_bytes");
        assert_eq!(
            failing(&["peak_reserved_bytes=4%", "6%", "retries=1"]),
            "peak_reserved_bytes",
            "the allowance of a column replaces the general one"
        );
    }

    #[test]
    fn improvements_fail_only_if_everything_must_be_equal() {
        let better = Row {
            peak_reserved_bytes: 1 << 20,
            efficiency: Some(1.0),
            device_allocs: 5,
            ..row()
        };
        for (_, effect, fails) in effects(&row(), &better) {
            assert_eq!((effect, fails), (Effect::Better, false));
        }
        assert!(!compare(&row(), &better, &limits(&[])).fails);
        assert!(compare(&better, &row(), &limits(&[])).fails);
        assert!(compare(&row(), &better, &exact()).fails);
    }

    #[test]
    fn figures_without_a_better_direction_fail_in_both() {
        let more = Row { events: 7, ..row() };
        for (old, new) in [(&row(), &more), (&more, &row())] {
            let events = "events".to_owned();
            assert_eq!(effects(old, new), [(events, Effect::Other, true)]);
        }
    }

    /// A program that completes serves more requests, and its peaks are higher.
    #[test]
    fn figures_of_a_row_whose_failures_changed_are_not_judged() {
        let failed = Row {
            ooms: 2,
            allocations: 4,
            efficiency: None,
            first_oom_event: Some(3),
            peak_reserved_bytes: 1 << 20,
            ..row()
        };
        for (old, new, effect) in [
            (&failed, &row(), Effect::Better),
            (&row(), &failed, Effect::Worse),
        ] {
            for (column, found, fails) in effects(old, new) {
                let expected = match column.as_str() {
                    "ooms" => effect,
                    _ => Effect::Unjudged,
                };
                assert_eq!(found, expected, "{column}");
                assert_eq!(fails, found == Effect::Worse, "{column}");
            }
        }
    }

    #[test]
    fn a_smaller_minimum_device_is_better_and_another_device_is_a_change() {
        let on = |capacity: &str, bytes, retries| Row {
            capacity: capacity.to_owned(),
            capacity_bytes: bytes,
            retries,
            ..row()
        };
        let effect = |capacity| {
            let (old, new) = (on(capacity, 100, 0), on(capacity, 90, 9));
            effects(&old, &new)
                .into_iter()
                .map(|(_, effect, _)| effect)
                .collect::<Vec<_>>()
        };
        assert_eq!(effect("least"), [Effect::Better, Effect::Unjudged]);
        assert_eq!(effect("110%"), [Effect::Other, Effect::Worse]);
    }

    #[test]
    fn a_policy_that_loses_support_for_a_workload_is_worse() {
        let unsupported = Row {
            unsupported: "streams".to_owned(),
            ..row()
        };
        for (old, new, effect, fails) in [
            (&row(), &unsupported, Effect::Worse, true),
            (&unsupported, &row(), Effect::Better, false),
        ] {
            let mut judged = effects(old, new);
            judged.retain(|(_, effect, _)| *effect != Effect::Unjudged);
            assert_eq!(judged, [("unsupported".to_owned(), effect, fails)]);
        }
    }

    #[test]
    fn a_lost_row_fails_and_an_added_row_only_if_all_must_be_equal() {
        let other = Row {
            setting: "another".to_owned(),
            ..row()
        };
        let both = [row(), other];
        let comparison = Comparison::of(&both, &both[..1], &limits(&[])).unwrap();
        assert_eq!((comparison.lost.len(), comparison.fails), (1, true));
        let comparison = Comparison::of(&both[..1], &both, &limits(&[])).unwrap();
        assert_eq!((comparison.added.len(), comparison.fails), (1, false));
        assert!(Comparison::of(&both[..1], &both, &exact()).unwrap().fails);
        let error = Comparison::of(&both[..1], &both[1..], &limits(&[])).unwrap_err();
        assert!(error.to_string().contains("no common row"), "{error}");
    }

    #[test]
    fn slower_fails_and_faster_or_noise_does_not() {
        let verdict = |old: u32, new: u32| {
            let comparison = compare(&timed(old), &timed(new), &limits(&[]));
            assert_eq!(comparison.timed, 1);
            (comparison.timings.len(), comparison.fails)
        };
        assert_eq!(verdict(100, 130), (1, true));
        assert_eq!(verdict(130, 100), (1, false));
        assert_eq!(verdict(100, 101), (0, false));
    }

    #[test]
    fn invalid_allowances_are_rejected_with_the_expected_form() {
        for (text, words) in [
            ("3", "expected a percentage such as 5%"),
            ("-1%", "expected a percentage"),
            ("retries=few", "expected a number or a percentage"),
            (
                "peak_reserved_byte=1%",
                "did you mean 'peak_reserved_bytes'",
            ),
            ("ns_per_pair=1%", "--allow-time"),
            ("workload=1%", "is not compared"),
        ] {
            let error = format!("{:#}", text.parse::<Allowed>().unwrap_err());
            assert!(error.contains(words), "no '{words}' in: {error}");
        }
    }
}
