//! What a setting does to many workloads at once, beside a baseline.

use std::fmt::{self, Write};

use anyhow::ensure;

use crate::measure::record::Row;
use crate::measure::statistics::median;
use crate::report::table::Layout;

/// A figure is better or worse if it differs by more than this, in percentage points.
const NOTICEABLE: f64 = 0.5;

/// One way to run workloads, over all of them.
#[derive(Debug)]
pub struct Summary {
    /// Its column in tables.
    pub column: String,
    /// Workloads.
    pub workloads: usize,
    /// Of these, those that the policy does not serve: no other figure is about them.
    pub unsupported: usize,
    /// Those that ran without a request that failed.
    pub fit: usize,
    /// Efficiency in percent, of those that fit: the median and the lowest.
    pub efficiency: Option<(f64, f64)>,
    /// Memory of the device beyond what is asked for at the peak, in percent: the median and the most.
    pub overhead: Option<(f64, f64)>,
    /// How many workloads it is better for than the baseline, and how many it is worse for: by overhead
    /// on the least capacity, else by efficiency.
    pub against: (usize, usize),
    /// Retries in all.
    pub retries: u64,
    /// Driver time, times that of the baseline: the median.
    pub driver_time: Option<f64>,
    /// Whether the device was the least that will do.
    is_least: bool,
}

/// A summary of each column of a table. `baseline` is what they are held against, on the same device: a
/// setting of the same policy, or `POLICY/SETTING`.
///
/// # Errors
/// If there is no such setting.
pub fn summarize(rows: &[Row], baseline: &str) -> anyhow::Result<Vec<Summary>> {
    let baseline = Baseline::named(baseline);
    let known = rows.iter().any(|row| baseline.is_met_by(row));
    ensure!(known, "the table has no setting '{baseline}'");
    let layout = Layout::of(rows);
    let columns = layout.columns(|_| true);
    Ok(columns
        .into_iter()
        .map(|column| {
            let of_column = |row: &&Row| layout.column_of(row) == column;
            let rows_of: Vec<&Row> = rows.iter().filter(of_column).collect();
            let pairs: Vec<(&Row, Option<&Row>)> = rows_of
                .iter()
                .map(|&row| (row, baseline.beside(row, rows)))
                .collect();
            summary(column, &pairs)
        })
        .collect())
}

/// What rows are held against.
#[derive(Debug)]
struct Baseline<'a> {
    /// The row's own, if there is none here.
    policy: Option<&'a str>,
    setting: &'a str,
}

impl<'a> Baseline<'a> {
    fn named(name: &'a str) -> Self {
        match name.split_once('/') {
            Some((policy, setting)) => Self {
                policy: Some(policy),
                setting,
            },
            None => Self {
                policy: None,
                setting: name,
            },
        }
    }

    fn is_met_by(&self, row: &Row) -> bool {
        row.setting == self.setting && self.policy.is_none_or(|policy| row.policy == policy)
    }

    /// The row that differs from `row` in nothing but that.
    fn beside<'r>(&self, row: &Row, rows: &'r [Row]) -> Option<&'r Row> {
        let mut key = row.key();
        if let Some(policy) = self.policy {
            policy.clone_into(&mut key[2]);
        }
        self.setting.clone_into(&mut key[3]);
        let measured = |other: &&Row| other.is_measured() && other.key() == key;
        rows.iter().find(measured)
    }
}

impl fmt::Display for Baseline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = self.policy {
            write!(f, "{policy}/")?;
        }
        f.write_str(self.setting)
    }
}

fn summary(column: String, pairs: &[(&Row, Option<&Row>)]) -> Summary {
    let workloads = pairs.len();
    let pairs: Vec<_> = pairs.iter().filter(|(row, _)| row.is_measured()).collect();
    let rows = || pairs.iter().map(|(row, _)| *row);
    let is_least = rows().all(|row| row.capacity.starts_with("least"));
    let merit = |row: &Row| {
        if is_least {
            overhead(row).map(|more| -more)
        } else {
            efficiency(row)
        }
    };
    let differs = |sign: f64| {
        let by = |(row, base): &&&(&Row, Option<&Row>)| {
            let gain = merit(row)
                .zip(base.and_then(merit))
                .map(|(own, base)| own - base);
            gain.is_some_and(|gain| sign * gain > NOTICEABLE)
        };
        pairs.iter().filter(by).count()
    };
    let efficiencies: Vec<f64> = rows().filter_map(efficiency).collect();
    let overheads: Vec<f64> = rows().filter_map(overhead).collect();
    let times = pairs.iter().filter_map(|(row, base)| {
        let base = base.map(|base| base.driver_time_ns).filter(|&ns| ns > 0)?;
        Some(row.driver_time_ns as f64 / base as f64)
    });
    let extreme = |values: &[f64], which: fn(f64, f64) -> f64| {
        Some((median(values)?, values.iter().copied().reduce(which)?))
    };
    Summary {
        column,
        workloads,
        unsupported: workloads - pairs.len(),
        fit: rows().filter(|row| row.ooms == 0).count(),
        efficiency: extreme(&efficiencies, f64::min),
        overhead: extreme(&overheads, f64::max).filter(|_| is_least),
        against: (differs(1.0), differs(-1.0)),
        retries: rows().map(|row| row.retries).sum(),
        driver_time: median(&times.collect::<Vec<_>>()),
        is_least,
    }
}

fn efficiency(row: &Row) -> Option<f64> {
    row.efficiency.map(|share| 100.0 * share)
}

fn overhead(row: &Row) -> Option<f64> {
    let (capacity, demand) = (row.capacity_bytes as f64, row.lower_bound_bytes as f64);
    (demand > 0.0).then(|| 100.0 * (capacity / demand - 1.0))
}

/// The summaries as a table.
#[must_use]
pub fn text(summaries: &[Summary], baseline: &str) -> String {
    let width = summaries
        .iter()
        .map(|s| s.column.len())
        .max()
        .unwrap_or(0)
        .max(8);
    let mut text = format!(
        "{:width$}  {:>7}  {:>14}  {:>18}  {:>14}  {:>7}  {:>11}\n",
        "", "fits", "efficiency", "least: requested", "better, worse", "retries", "driver time"
    );
    for summary in summaries {
        let Summary {
            column,
            workloads,
            fit,
            retries,
            ..
        } = summary;
        let pair = |pair: Option<(f64, f64)>, sign: &str| {
            pair.map_or_else(String::new, |(a, b)| {
                format!("{sign}{a:.1}, {sign}{b:.1} %")
            })
        };
        let (better, worse) = summary.against;
        let time = summary
            .driver_time
            .map_or_else(String::new, |ratio| format!("x {ratio:.2}"));
        let efficiency = if summary.is_least {
            None
        } else {
            summary.efficiency
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{column:width$}  {:>7}  {:>14}  {:>18}  {:>14}  {retries:>7}  {time:>11}",
            format!("{fit}/{workloads}"),
            pair(efficiency, ""),
            pair(summary.overhead, "+"),
            format!("{better}, {worse}"),
        );
    }
    let unserved = summaries.iter().filter(|summary| summary.unsupported > 0);
    let unserved = unserved.map(|summary| format!("{} {}", summary.unsupported, summary.column));
    let unserved: Vec<String> = unserved.collect();
    if !unserved.is_empty() {
        let _ = write!(
            text,
            "\nDo not fit because the policy does not serve what they do: {}.\n",
            unserved.join(", ")
        );
    }
    let _ = write!(
        text,
        "\nEfficiency: the median and the lowest. Least: the device that will do, beyond what is requested;\n\
         the median and the most. Better, worse: for how many workloads, by {NOTICEABLE} points or more,\n\
         than under '{baseline}' on the same device. Retries of all workloads. Driver time: times that\n\
         under '{baseline}', the median.\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::tests::row;

    fn cell(workload: &str, setting: &str, capacity: &str, efficiency: Option<f64>) -> Row {
        Row {
            workload: workload.to_owned(),
            setting: setting.to_owned(),
            capacity: capacity.to_owned(),
            capacity_bytes: 110,
            lower_bound_bytes: 100,
            efficiency,
            ooms: u64::from(efficiency.is_none()),
            retries: 2,
            driver_time_ns: if setting == "base" { 10 } else { 30 },
            ..row()
        }
    }

    #[test]
    fn settings_are_held_against_the_baseline_on_the_same_device() {
        let mut tight = cell("a", "other", "least", Some(0.9));
        tight.capacity_bytes = 105;
        let rows = [
            cell("a", "base", "1TiB", Some(0.8)),
            cell("b", "base", "1TiB", Some(0.7)),
            cell("a", "other", "1TiB", Some(0.9)),
            cell("b", "other", "1TiB", None),
            cell("a", "base", "least", Some(0.9)),
            tight,
        ];
        let summaries = summarize(&rows, "base").unwrap();
        let [base, other, base_least, other_least] = &summaries[..] else {
            panic!("{summaries:?}");
        };
        assert_eq!(
            (base.fit, base.against, base.driver_time),
            (2, (0, 0), Some(1.0))
        );
        assert_eq!(base.efficiency, Some((75.0, 70.0)));
        assert_eq!((other.fit, other.workloads, other.against), (1, 2, (1, 0)));
        assert_eq!((other.driver_time, other.retries), (Some(3.0), 4));
        assert_eq!(base_least.overhead.unwrap().0.round(), 10.0);
        assert_eq!(other_least.against, (1, 0), "a smaller device is better");
        assert!(text(&summaries, "base").contains("other@least"));
        assert!(summarize(&rows, "none").is_err());
    }
}
