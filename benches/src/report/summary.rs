//! The effect of settings over many workloads, compared with a baseline.

use std::fmt::{self, Write};

use anyhow::ensure;

use crate::measure::record::Row;
use crate::measure::statistics::median;
use crate::report::table::Layout;
use crate::text::{Column, Table};

/// Smallest difference that counts as better or worse, in percentage points.
const NOTICEABLE: f64 = 0.5;

/// One way to run workloads, summarized over all of them.
#[derive(Debug)]
pub struct Summary {
    /// Its name: the column in tables.
    pub column: String,
    /// Number of workloads.
    pub workloads: usize,
    /// Workloads that the policy does not support. The other figures exclude them.
    pub unsupported: usize,
    /// Workloads without a failed request.
    pub fit: usize,
    /// Efficiency of the workloads that fit, in percent: median and lowest.
    pub efficiency: Option<(f64, f64)>,
    /// Minimum device memory beyond the peak requested, in percent: median and highest.
    pub overhead: Option<(f64, f64)>,
    /// Numbers of workloads that are better and worse than under the baseline: by minimum device memory if the
    /// capacity is the minimum, else by efficiency.
    pub against: (usize, usize),
    /// Retries of all workloads.
    pub retries: u64,
    /// Driver time relative to the baseline: median.
    pub driver_time: Option<f64>,
    /// Whether the capacity was the minimum device memory.
    is_least: bool,
}

/// Summarizes each column of a table. `baseline` is what rows on the same device are compared with: a setting of
/// the same policy, or `POLICY/SETTING`.
///
/// # Errors
/// If the table has no such setting.
pub fn summarize(rows: &[Row], baseline: &str) -> anyhow::Result<Vec<Summary>> {
    let baseline = Baseline::named(baseline);
    let known = rows.iter().any(|row| baseline.includes(row));
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

/// The rows that other rows are compared with.
#[derive(Debug)]
struct Baseline<'a> {
    /// `None` for the policy of the compared row.
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

    fn includes(&self, row: &Row) -> bool {
        row.setting == self.setting && self.policy.is_none_or(|policy| row.policy == policy)
    }

    /// The baseline's row for the same workload on the same device.
    fn beside<'r>(&self, row: &Row, rows: &'r [Row]) -> Option<&'r Row> {
        let policy = self.policy.unwrap_or(&row.policy);
        let wanted = |other: &&Row| {
            other.is_measured()
                && other.policy == policy
                && other.setting == self.setting
                && other.is_beside(row)
        };
        rows.iter().find(wanted)
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
    let headings = [
        "fits",
        "efficiency",
        "min. device memory",
        "better, worse",
        "retries",
        "driver time",
    ];
    let headings = headings.map(Column::right).into_iter();
    let mut table = Table::new(std::iter::once(Column::left("")).chain(headings));
    for summary in summaries {
        let pair = |pair: Option<(f64, f64)>, sign: &str| {
            pair.map_or_else(String::new, |(a, b)| {
                format!("{sign}{a:.1}, {sign}{b:.1} %")
            })
        };
        let efficiency = summary.efficiency.filter(|_| !summary.is_least);
        let (better, worse) = summary.against;
        table.row([
            summary.column.clone(),
            format!("{}/{}", summary.fit, summary.workloads),
            pair(efficiency, ""),
            pair(summary.overhead, "+"),
            format!("{better}, {worse}"),
            summary.retries.to_string(),
            summary
                .driver_time
                .map_or_else(String::new, |ratio| format!("x {ratio:.2}")),
        ]);
    }
    let unsupported = summaries.iter().filter(|summary| summary.unsupported > 0);
    let unsupported: Vec<String> = unsupported
        .map(|summary| format!("{} {}", summary.unsupported, summary.column))
        .collect();
    let mut text = table.text();
    // Writing to a string cannot fail.
    if !unsupported.is_empty() {
        let _ = write!(
            text,
            "\nWorkloads that the policy does not support count as not fitting: {}.\n",
            unsupported.join(", ")
        );
    }
    let _ = write!(
        text,
        "\nEfficiency: median and lowest. Minimum device memory: beyond the peak requested; median and highest.\n\
         Better, worse: number of workloads that differ from '{baseline}' on the same device by more than\n\
         {NOTICEABLE} points. Retries: sum over all workloads. Driver time: relative to '{baseline}', median.\n"
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
    fn settings_are_compared_with_the_baseline_on_the_same_device() {
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
