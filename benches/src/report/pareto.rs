//! The trade-off between memory and driver time across policies.
//!
//! A policy that returns all memory at once reserves little but calls the driver constantly. The Pareto **front** of
//! a workload contains the ways to run it that no other way beats in both reserved memory and driver time. Offline
//! policies cannot be chosen in practice, so they are shown but excluded from the front.

use std::collections::BTreeMap;

use coalesce_alloc::registry::POLICIES;

use crate::measure::record::Row;
use crate::measure::statistics::median;
use crate::report::table::{Layout, is_tight};
use crate::text::{Table, percent};

/// The way that driver time and time per pair are relative to.
const BASELINE: (&str, &str) = ("pytorch", "default");

/// A way to run a workload, with its memory and its driver time.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Policy and setting.
    pub name: String,
    /// Peak reserved / peak requested.
    pub reserved: f64,
    /// Modelled driver time in milliseconds, or another time.
    pub time: f64,
    /// Whether the policy is offline.
    pub is_offline: bool,
}

impl Point {
    fn of(row: &Row, rows: &[Row]) -> Self {
        Self {
            name: full_name(row, rows),
            reserved: row.reserved_of_requested(),
            time: row.driver_time_ns as f64 / 1e6,
            is_offline: is_offline(&row.policy),
        }
    }

    /// Whether it is at least as good in both figures and better in one.
    fn beats(&self, other: &Self) -> bool {
        let no_worse = self.reserved <= other.reserved && self.time <= other.time;
        no_worse && (self.reserved < other.reserved || self.time < other.time)
    }
}

/// The points of online policies that no other such point beats, by increasing memory. Of equal points, the first.
#[must_use]
pub fn front(points: &[Point]) -> Vec<&Point> {
    let choices = || points.iter().filter(|point| !point.is_offline);
    let mut front: Vec<&Point> = choices()
        .filter(|point| !choices().any(|other| other.beats(point)))
        .collect();
    front.sort_by(|a, b| a.reserved.total_cmp(&b.reserved));
    front.dedup_by(|a, b| a.reserved == b.reserved && a.time == b.time);
    front
}

/// The points of each workload: its runs on roomy devices without failed requests, in the order of the rows.
#[must_use]
pub fn points(rows: &[Row]) -> Vec<(String, Vec<Point>)> {
    let layout = Layout::of(rows);
    let good = |row: &&Row| row.is_measured() && row.ooms == 0 && !is_tight(row);
    let all = rows;
    let of_line = |line: String| {
        let rows = rows
            .iter()
            .filter(good)
            .filter(|row| layout.line_of(row) == line);
        let points = rows.map(|row| Point::of(row, all)).collect();
        (line, points)
    };
    layout.lines().into_iter().map(of_line).collect()
}

pub(crate) fn name(row: &Row) -> String {
    match row.setting.as_str() {
        "default" => row.policy.clone(),
        setting => format!("{}/{setting}", row.policy),
    }
}

/// Policy and setting of a row, and what else differs among the roomy ones of `rows`.
pub(crate) fn full_name(row: &Row, rows: &[Row]) -> String {
    let columns: [fn(&Row) -> &str; 3] = [
        |row| &row.capacity,
        |row| &row.address_policy,
        |row| &row.torch,
    ];
    let mut full = name(row);
    for column in columns {
        let mut stated = rows.iter().filter(|row| !is_tight(row)).map(column);
        let mut others = stated.by_ref().filter(|other| !other.is_empty());
        let first = others.next();
        if !column(row).is_empty() && others.any(|other| Some(other) != first) {
            full = format!("{full} {}", column(row));
        }
    }
    full
}

/// The policy's name, marked if it knows the program in advance.
pub(crate) fn marked(way: &str) -> String {
    let policy = way.split('/').next().unwrap_or(way);
    let mark = if is_offline(policy) { "°" } else { "" };
    format!("{way}{mark}")
}

/// Whether the policy must know the program in advance.
#[must_use]
pub fn is_offline(policy: &str) -> bool {
    POLICIES
        .iter()
        .any(|known| known.name == policy && known.offline)
}

/// The front of each workload, as a table in Markdown.
#[must_use]
pub fn fronts(rows: &[Row]) -> String {
    let headings = [
        "workload",
        "front: reserved / requested, driver time",
        "offline policies",
    ];
    let mut table = Table::of(headings, [""; 0]);
    let shown = |point: &Point| {
        let (share, ms) = (percent(point.reserved), point.time);
        format!("{} {share}, {ms:.1} ms", point.name)
    };
    for (workload, points) in points(rows) {
        let front: Vec<String> = front(&points).into_iter().map(shown).collect();
        let offline: Vec<String> = points
            .iter()
            .filter(|point| point.is_offline)
            .map(shown)
            .collect();
        table.row([workload, front.join("; "), offline.join("; ")]);
    }
    table.markdown()
}

/// The rows of one way to run workloads.
#[derive(Default)]
struct Way<'a> {
    roomy: Vec<&'a Row>,
    least: Vec<&'a Row>,
    on_front: usize,
}

/// The memory and the costs of each policy over all workloads, as a table in Markdown.
#[must_use]
pub fn policies(rows: &[Row]) -> String {
    let mut order: Vec<String> = Vec::new();
    let mut ways: BTreeMap<String, Way<'_>> = BTreeMap::new();
    for row in rows {
        let name = name(row);
        if !order.contains(&name) {
            order.push(name.clone());
        }
        let way = ways.entry(name).or_default();
        if is_tight(row) {
            way.least.push(row);
        } else {
            way.roomy.push(row);
        }
    }
    for (_, points) in points(rows) {
        for point in front(&points) {
            ways.entry(point.name.clone()).or_default().on_front += 1;
        }
    }
    let base = Base::of(rows);
    let headings = [
        "completes",
        "efficiency",
        "minimum device memory",
        "driver calls per 1000",
        "driver time",
        "ns per pair",
        "on the front",
    ];
    let mut table = Table::of(["policy"], headings);
    for name in order {
        let way = &ways[&name];
        let is_offline = way.roomy.iter().any(|row| is_offline(&row.policy));
        let mut cells = vec![format!("{name}{}", if is_offline { "°" } else { "" })];
        cells.extend(figures(way, &base));
        cells.push(if is_offline {
            String::new()
        } else {
            way.on_front.to_string()
        });
        table.row(cells);
    }
    table.markdown()
}

fn figures(way: &Way<'_>, base: &Base<'_>) -> [String; 6] {
    let measured: Vec<&Row> = way
        .roomy
        .iter()
        .copied()
        .filter(|row| row.is_measured())
        .collect();
    let whole = || measured.iter().copied().filter(|row| row.ooms == 0);
    let efficiencies: Vec<f64> = whole().filter_map(|row| row.efficiency).collect();
    let least = way.least.iter().filter(|row| row.is_measured());
    let overheads: Vec<f64> = least
        .map(|row| 100.0 * (row.capacity_bytes as f64 / row.lower_bound_bytes.max(1) as f64 - 1.0))
        .collect();
    let calls: Vec<f64> = whole()
        .filter_map(|row| row.driver_calls_per_1000)
        .collect();
    let ratio = |figure: fn(&Row) -> Option<f64>| {
        let ratios: Vec<f64> = whole()
            .filter_map(|row| {
                let other = base.beside(row).and_then(figure)?;
                (other > 0.0)
                    .then(|| figure(row).map(|own| own / other))
                    .flatten()
            })
            .collect();
        median(&ratios).map_or_else(String::new, |ratio| format!("× {ratio:.2}"))
    };
    let lowest = efficiencies.iter().copied().fold(f64::INFINITY, f64::min);
    let most = overheads.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let pair = |middle: Option<f64>, extreme: f64, sign: &str| {
        middle.map_or_else(String::new, |middle| {
            format!("{sign}{middle:.1} % ({sign}{extreme:.1} %)")
        })
    };
    [
        format!("{}/{}", whole().count(), way.roomy.len()),
        pair(
            median(&efficiencies).map(|share| 100.0 * share),
            100.0 * lowest,
            "",
        ),
        pair(median(&overheads), most, "+"),
        median(&calls).map_or_else(String::new, |calls| format!("{calls:.1}")),
        ratio(|row| Some(row.driver_time_ns as f64)),
        ratio(|row| row.ns_per_pair),
    ]
}

/// The rows of the baseline, by workload.
struct Base<'a>(BTreeMap<(&'a str, Option<u64>), &'a Row>);

impl<'a> Base<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let is_base = |row: &&Row| (row.policy.as_str(), row.setting.as_str()) == BASELINE;
        let rows = rows.iter().filter(is_base).filter(|row| !is_tight(row));
        Self(
            rows.map(|row| ((row.workload.as_str(), row.seed), row))
                .collect(),
        )
    }

    fn beside(&self, row: &Row) -> Option<&'a Row> {
        self.0.get(&(row.workload.as_str(), row.seed)).copied()
    }
}
