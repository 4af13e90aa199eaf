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
use crate::text::{Column, Table};

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
                let unknown = match name.contains('/') {
                    true => Unknown::new(name, &known),
                    false => Unknown::new(name, settings().collect::<BTreeSet<_>>()),
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
    let family = family.unwrap_or(match families.contains(RECORDED) {
        true => RECORDED,
        false => ALL,
    });
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
    let headings = headings.map(Column::right).into_iter();
    let mut table = Table::new(std::iter::once(Column::left("")).chain(headings));
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
        let ways = summary.ways.iter().map(|way| (count(way), &way.name));
        let ways = ways.filter(|(count, _)| *count > 0);
        let ways: Vec<String> = ways
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
    match summary.left_out.len() {
        0 => {}
        count => {
            let _ = write!(
                text,
                "\nLeft out: {count} workloads of other families; --family {ALL} includes them.\n"
            );
        }
    }
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

    fn of_policy(policy: &str, setting: &str, efficiency: f64) -> Row {
        Row {
            policy: policy.to_owned(),
            ..cell("a", setting, "1TiB", Some(efficiency))
        }
    }

    #[test]
    fn settings_are_compared_with_one_on_the_same_device() {
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
        let summary = summarize(&rows, Some("base"), Vec::new()).unwrap();
        let [base, other, base_least, other_least] = &summary.ways[..] else {
            panic!("{summary:?}");
        };
        let against = |way: &Way| (way.better, way.worse);
        assert_eq!(
            (base.fit, against(base), base.driver_time),
            (2, (0, 0), Some(1.0))
        );
        let spread = Spread {
            median: 75.0,
            extreme: 70.0,
        };
        assert_eq!(base.efficiency, Some(spread));
        assert_eq!((other.fit, other.workloads, against(other)), (1, 2, (1, 0)));
        assert_eq!((other.driver_time, other.retries), (Some(3.0), 4));
        assert_eq!(base_least.overhead.unwrap().median.round(), 10.0);
        assert_eq!(against(other_least), (1, 0), "a smaller device is better");
        assert!(text(&summary).contains("other@least"));
    }

    #[test]
    fn policies_are_compared_with_the_reference_by_default() {
        let rows = [
            of_policy("bfc", "default", 0.2),
            of_policy("bfc", "grow", 0.3),
            of_policy("pytorch", "default", 0.9),
        ];
        let worse = |rows: &[Row], against| {
            let summary = summarize(rows, against, Vec::new()).unwrap();
            let ways = summary.ways.iter().filter(|way| way.worse > 0);
            let ways: Vec<String> = ways.map(|way| way.name.clone()).collect();
            (summary.against.to_string(), ways.join(" "))
        };
        let compared = |against: &str, ways: &str| (against.to_owned(), ways.to_owned());
        let reference = compared("pytorch/default", "bfc/default bfc/grow");
        assert_eq!(worse(&rows, None), reference);
        assert_eq!(worse(&rows[..2], None), compared("bfc/default", ""));
        let grow = compared("bfc/grow", "bfc/default");
        assert_eq!(worse(&rows, Some("bfc/grow")), grow);
        assert_eq!(worse(&rows, Some("grow")), grow);
    }

    #[test]
    fn unknown_and_ambiguous_rows_are_rejected_with_the_possible_ones() {
        let rows = [
            of_policy("bfc", "default", 0.2),
            of_policy("pytorch", "default", 0.9),
        ];
        for (against, words) in [
            ("pytorch/defualt", "did you mean 'pytorch/default'?"),
            ("defualt", "did you mean 'default'?"),
            ("default", "name one of: bfc/default, pytorch/default"),
        ] {
            let error = summarize(&rows, Some(against), Vec::new()).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(words), "no '{words}' in: {error}");
        }
    }

    #[test]
    fn rows_without_a_counterpart_are_named() {
        let rows = [
            of_policy("pytorch", "default", 0.9),
            cell("b", "other", "1TiB", Some(0.9)),
        ];
        let summary = summarize(&rows, None, Vec::new()).unwrap();
        let text = text(&summary);
        assert!(text.contains("on the same device: 1 other."), "{text}");
    }

    #[test]
    fn synthetic_workloads_are_left_out_beside_recorded_ones_and_said_to_be() {
        let of = |family: &str, workload: &str| Row {
            family: family.to_owned(),
            ..cell(workload, "default", "1TiB", Some(0.5))
        };
        let rows = vec![of(RECORDED, "a"), of("comb", "b"), of("churn", "c")];
        let shown = |rows: &[Row], family: Option<&str>| {
            let (rows, left_out) = select(rows.to_vec(), family).unwrap();
            let text = text(&summarize(&rows, None, left_out).unwrap());
            (rows.len(), text.contains("Left out: 2 workloads"))
        };
        assert_eq!(shown(&rows, None), (1, true));
        assert_eq!(shown(&rows, Some("comb")), (1, true));
        assert_eq!(shown(&rows, Some(ALL)), (3, false));
        assert_eq!(shown(&rows[1..], None), (2, false));
        let error = select(rows, Some("combs")).unwrap_err().to_string();
        assert!(error.contains("did you mean 'comb'"), "{error}");
    }
}
