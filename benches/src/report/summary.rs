//! The effect of policies and settings over many workloads, compared with one of them.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use anyhow::{Context, bail, ensure};
use coalesce_alloc::printable::printable;
use coalesce_workloads::catalog::Unknown;
use schemars::JsonSchema;
use serde::Serialize;

use crate::measure::cell::REFERENCE;
use crate::measure::record::{RECORDED, Row};
use crate::measure::statistics::median;
use crate::report::table::Layout;
use crate::text::Table;

/// Smallest difference that counts as better or worse, in percentage points.
const NOTICEABLE: f64 = 0.5;

/// The name for the workloads of all families.
pub const ALL: &str = "all";

/// The effect of policies and settings over many workloads.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Summary {
    /// The number of this format.
    format: u32,
    /// The policy and the setting that the others are compared with.
    pub against: Against,
    /// Names of the workloads of other families, which are left out.
    pub left_out: Vec<String>,
    /// The ways to run the workloads.
    pub ways: Vec<Way>,
}

/// One way to run workloads, summarized over all of them.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Way {
    /// Its name: the column in tables.
    pub name: String,
    /// Number of workloads.
    pub workloads: usize,
    /// Workloads that the policy does not support. The other figures exclude them.
    pub unsupported: usize,
    /// Workloads without a failed request.
    pub fit: usize,
    /// Efficiency of the workloads that fit, in percent; the extreme is the lowest.
    pub efficiency: Option<Spread>,
    /// Minimum device memory beyond the peak requested, in percent; the extreme is the highest. None if the capacity
    /// is not the minimum.
    pub overhead: Option<Spread>,
    /// Workloads that are also measured in the way compared with, on the same device.
    pub compared: usize,
    /// How many of these workloads are better: they need less device memory if the capacity is the minimum, and
    /// have a higher efficiency otherwise.
    pub better: usize,
    /// How many of these workloads are worse.
    pub worse: usize,
    /// Retries of all workloads.
    pub retries: u64,
    /// Driver time relative to the way compared with: median.
    pub driver_time: Option<f64>,
    /// Whether the capacity was the minimum device memory.
    #[serde(skip)]
    is_least: bool,
}

/// The median and the extreme of a figure.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The worst.
    pub extreme: f64,
}

/// The rows that other rows are compared with.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Against {
    /// The policy.
    pub policy: String,
    /// The name of the setting.
    pub setting: String,
}

impl Against {
    fn of(row: &Row) -> Self {
        Self {
            policy: row.policy.clone(),
            setting: row.setting.clone(),
        }
    }

    /// The rows called `POLICY/SETTING`, or `SETTING` if one policy has it. Default: `pytorch/default` if the table
    /// has it, else the first row's.
    fn find(rows: &[Row], name: Option<&str>) -> anyhow::Result<Self> {
        let Some(name) = name else {
            let reference = |row: &&Row| row.policy == REFERENCE && row.setting == "default";
            let row = rows.iter().find(reference).or(rows.first());
            return Ok(Self::of(row.context("no rows of results")?));
        };
        let mut known: Vec<Self> = Vec::new();
        for row in rows {
            let one = Self::of(row);
            if !known.contains(&one) {
                known.push(one);
            }
        }
        let has_name = |one: &&Self| one.to_string() == name || one.setting == name;
        let found: Vec<&Self> = known.iter().filter(has_name).collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => {
                let settings = || known.iter().map(|one| one.setting.clone());
                let unknown = if name.contains('/') {
                    Unknown::new(name, &known)
                } else {
                    Unknown::new(name, settings().collect::<BTreeSet<_>>())
                };
                bail!("the table has no row {unknown}")
            }
            several => {
                let names = several
                    .iter()
                    .map(|one| printable(one.to_string()).to_string());
                bail!(
                    "'{}' is a setting of several policies; name one of: {}",
                    printable(name),
                    names.collect::<Vec<_>>().join(", ")
                )
            }
        }
    }

    /// Its row for the same workload on the same device.
    pub(crate) fn beside<'r>(&self, row: &Row, rows: &'r [Row]) -> Option<&'r Row> {
        let wanted = |other: &&Row| {
            other.is_measured()
                && other.policy == self.policy
                && other.setting == self.setting
                && other.is_beside(row)
        };
        rows.iter().find(wanted)
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy, self.setting)
    }
}

/// The rows of a family, or of [`ALL`], and the names of the workloads that are left out. Default: the recorded
/// workloads if there are any.
///
/// # Errors
/// If the table has no such family.
pub fn select(rows: Vec<Row>, family: Option<&str>) -> anyhow::Result<(Vec<Row>, Vec<String>)> {
    let families: BTreeSet<String> = rows.iter().map(|row| row.family.clone()).collect();
    let has_recorded = families.contains(RECORDED);
    let family = family.unwrap_or(if has_recorded { RECORDED } else { ALL });
    let names = families.iter().map(String::as_str).chain([ALL]);
    ensure!(
        family == ALL || families.contains(family),
        "no rows of family {}",
        Unknown::new(family, names)
    );
    let is_wanted = |row: &Row| family == ALL || row.family == family;
    let (wanted, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_wanted);
    let others: BTreeSet<String> = others.into_iter().map(|row| row.workload).collect();
    Ok((wanted, others.into_iter().collect()))
}

/// Summarizes each column of a table. Rows on the same device are compared with those of `against`: `POLICY/SETTING`,
/// or a setting that one policy has. `left_out` are the workloads that the table does not show.
///
/// # Errors
/// If the table has no rows, or not those.
pub fn summarize(
    rows: &[Row],
    against: Option<&str>,
    left_out: Vec<String>,
) -> anyhow::Result<Summary> {
    let against = Against::find(rows, against)?;
    let layout = Layout::of(rows);
    let columns = layout.columns(|_| true).into_iter();
    let ways = columns.map(|column| {
        let of_column = |row: &&Row| layout.column_of(row) == column;
        let rows_of = rows.iter().filter(of_column);
        let pairs: Vec<(&Row, Option<&Row>)> = rows_of
            .map(|row| (row, against.beside(row, rows)))
            .collect();
        way(column, &pairs)
    });
    Ok(Summary {
        format: 1,
        ways: ways.collect(),
        against,
        left_out,
    })
}

fn way(name: String, pairs: &[(&Row, Option<&Row>)]) -> Way {
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
        Some(Spread {
            median: median(values)?,
            extreme: values.iter().copied().reduce(which)?,
        })
    };
    Way {
        name,
        workloads,
        unsupported: workloads - pairs.len(),
        fit: rows().filter(|row| row.ooms == 0).count(),
        efficiency: extreme(&efficiencies, f64::min),
        overhead: extreme(&overheads, f64::max).filter(|_| is_least),
        compared: pairs.iter().filter(|(_, base)| base.is_some()).count(),
        better: differs(1.0),
        worse: differs(-1.0),
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

/// The summary as a table.
#[must_use]
pub fn text(summary: &Summary) -> String {
    let headings = [
        "fits",
        "efficiency",
        "min. device memory",
        "better, worse",
        "retries",
        "driver time",
    ];
    let mut table = Table::of([""], headings);
    for way in &summary.ways {
        let spread = |spread: Option<Spread>, sign: &str| {
            spread.map_or_else(String::new, |Spread { median, extreme }| {
                format!("{sign}{median:.1}, {sign}{extreme:.1} %")
            })
        };
        table.row([
            way.name.clone(),
            format!("{}/{}", way.fit, way.workloads),
            spread(way.efficiency.filter(|_| !way.is_least), ""),
            spread(way.overhead, "+"),
            match way.compared {
                0 => String::new(),
                _ => format!("{}, {}", way.better, way.worse),
            },
            way.retries.to_string(),
            way.driver_time
                .map_or_else(String::new, |ratio| format!("x {ratio:.2}")),
        ]);
    }
    let against = printable(summary.against.to_string());
    let mut text = format!("Compared with {against}\n\n{}", table.text());
    let counted = |count: fn(&Way) -> usize| {
        let ways: Vec<String> = summary
            .ways
            .iter()
            .map(|way| (count(way), &way.name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {}", printable(name)))
            .collect();
        (!ways.is_empty()).then(|| ways.join(", "))
    };
    // Writing to a string cannot fail.
    if let Some(ways) = counted(|way| way.unsupported) {
        let _ = write!(
            text,
            "\nWorkloads that the policy does not support count as not fitting: {ways}.\n"
        );
    }
    if let Some(ways) = counted(|way| way.workloads - way.unsupported - way.compared) {
        let _ = write!(
            text,
            "\nWorkloads that are not compared, because '{against}' is not measured on the same device: {ways}.\n"
        );
    }
    let _ = write!(
        text,
        "\nEfficiency: median and lowest. Minimum device memory: beyond the peak requested; median and highest.\n\
         Better, worse: number of workloads that differ from '{against}' on the same device by more than\n\
         {NOTICEABLE} points. Retries: sum over all workloads. Driver time: relative to '{against}', median.\n"
    );
    let count = summary.left_out.len();
    if count > 0 {
        let _ = write!(
            text,
            "\nLeft out: {count} workloads of other families; --family {ALL} includes them.\n"
        );
    }
    text
}
