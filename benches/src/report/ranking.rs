//! Who needs how much memory, and how fast: a line for each policy over all programs.

use std::collections::BTreeMap;

use crate::measure::record::Row;
use crate::report::pareto::{Point, is_offline, marked, name};
use crate::report::waste::programs::serves;
use crate::text::{Table, percent};

/// Most lines of the table. The policies that need most are named below it.
const MOST_LINES: usize = 16;
/// The policy that is always in the table, and with whose default settings driver times are compared.
const REFERENCE: &str = "pytorch";

/// Policies by the memory that they need.
pub struct Ranking {
    /// The least first.
    ways: Vec<Way>,
    /// Number of programs.
    programs: usize,
    /// Programs that every policy serves. The means are of these.
    common: usize,
    /// Programs that are timed.
    timed: usize,
}

/// A policy with its settings.
struct Way {
    name: String,
    policy: String,
    /// Number of programs without a failed request.
    served: usize,
    /// Peak reserved / peak requested: the geometric mean and the most.
    reserved: (f64, f64),
    /// The geometric mean of the times for a malloc and its free in nanoseconds; `None` if a program is not timed.
    pair_ns: Option<f64>,
    /// The geometric mean of the driver time in multiples of the reference's.
    driver_time: Option<f64>,
}

impl Ranking {
    /// The ranking of rows of which each is the only one of its workload, policy and setting.
    #[must_use]
    pub fn of(rows: &[Row]) -> Self {
        let mut of_way: BTreeMap<String, BTreeMap<&str, &Row>> = BTreeMap::new();
        for row in rows {
            let of_way = of_way.entry(name(row)).or_default();
            if serves(row) {
                of_way.insert(&row.workload, row);
            }
        }
        let mut programs: Vec<&str> = rows.iter().map(|row| &*row.workload).collect();
        programs.sort_unstable();
        programs.dedup();
        let mut common = programs.clone();
        common.retain(|program| of_way.values().all(|rows| rows.contains_key(program)));
        let is_timed = |row: &&Row| row.ns_per_pair.is_some();
        let timed: Vec<&str> = programs
            .iter()
            .filter(|program| {
                let rows = of_way.values().filter_map(|rows| rows.get(*program));
                rows.copied().any(|row| is_timed(&row))
            })
            .copied()
            .collect();
        let reference = of_way.get(REFERENCE);
        let mut ways: Vec<Way> = of_way
            .iter()
            .map(|(name, rows)| {
                let share = |program: &&str| rows[program].reserved_of_requested();
                let driver_time = |program: &&str| {
                    let of = |row: &Row| row.driver_time_ns as f64;
                    Some(of(rows[program]) / of(reference?.get(program)?))
                };
                let pair_ns = |program: &&str| rows.get(program)?.ns_per_pair;
                Way {
                    name: name.clone(),
                    policy: policy_of(name).to_owned(),
                    served: rows.len(),
                    reserved: (
                        geometric_mean(common.iter().map(|program| Some(share(program))))
                            .unwrap_or(f64::NAN),
                        common.iter().map(share).fold(0.0, f64::max),
                    ),
                    pair_ns: geometric_mean(timed.iter().map(pair_ns)),
                    driver_time: geometric_mean(common.iter().map(driver_time)),
                }
            })
            .collect();
        ways.sort_by(|one, other| one.reserved.0.total_cmp(&other.reserved.0));
        Self {
            ways,
            programs: programs.len(),
            common: common.len(),
            timed: timed.len(),
        }
    }

    /// The table, and below it what its figures mean.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = Table::of(
            ["policy"],
            [
                "serves",
                "reserved",
                "at most",
                "malloc + free",
                "driver time",
            ],
        );
        let is_reference = |way: &&Way| way.policy == REFERENCE;
        let mut places = MOST_LINES.saturating_sub(self.ways.iter().filter(is_reference).count());
        let mut below = Vec::new();
        for way in &self.ways {
            if !is_reference(&way) {
                if places == 0 {
                    below.push(format!("{} {}", way.name, percent(way.reserved.0)));
                    continue;
                }
                places -= 1;
            }
            let text = |figure: Option<f64>, text: fn(f64) -> String| {
                figure.map_or_else(String::new, text)
            };
            table.row([
                marked(&way.name),
                format!("{}/{}", way.served, self.programs),
                percent(way.reserved.0),
                percent(way.reserved.1),
                text(way.pair_ns, |ns| format!("{ns:.0} ns")),
                text(way.driver_time, |ratio| format!("× {ratio:.2}")),
            ]);
        }
        let below = match below.as_slice() {
            [] => String::new(),
            ways => format!("More than all of these: {}.\n", ways.join(", ")),
        };
        format!(
            "{}{below}\n\
             reserved:       peak reserved / peak requested, mean of the {} programs that all serve\n\
             at most:        the same of the worst of them\n\
             malloc + free:  time of a pair without driver calls, mean of {} programs\n\
             driver time:    modelled, in multiples of pytorch's\n\
             °:              knows the program in advance\n",
            table.text(),
            self.common,
            self.timed,
        )
    }

    /// The policies that are timed, for a plot.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let point = |way: &Way| {
            Some(Point {
                name: way.name.clone(),
                reserved: way.reserved.0,
                time: way.pair_ns?,
                is_offline: is_offline(&way.policy),
            })
        };
        self.ways.iter().filter_map(point).collect()
    }
}

fn policy_of(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The geometric mean; `None` without figures, or if one is missing.
fn geometric_mean(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logarithms: Vec<f64> = figures
        .map(|figure| figure.map(f64::ln))
        .collect::<Option<_>>()?;
    let count = logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, way: (&str, &str), reserved: u64, ns: Option<f64>) -> Row {
        Row {
            workload: workload.to_owned(),
            policy: way.0.to_owned(),
            setting: way.1.to_owned(),
            events: 1,
            lower_bound_bytes: 100,
            peak_reserved_bytes: reserved,
            driver_time_ns: reserved,
            ns_per_pair: ns,
            ..Row::default()
        }
    }

    /// A program that a policy does not serve is in no mean. The reference is in the table although others need less.
    #[test]
    fn the_least_memory_comes_first_and_the_reference_is_there() {
        let mut rows = Vec::new();
        for (policy, setting, reserved, ns) in [
            ("pytorch", "default", 180, Some(80.0)),
            ("pytorch", "expand", 120, Some(90.0)),
            ("quilt", "default", 101, Some(300.0)),
            ("offline", "default", 100, None),
        ] {
            rows.push(row("a", (policy, setting), reserved, ns));
            rows.push(row("b", (policy, setting), reserved + 20, None));
            let failed = u64::from(policy == "quilt");
            let last = row("c", (policy, setting), 1000, None);
            rows.push(Row {
                ooms: failed,
                ..last
            });
        }
        for number in 0..14 {
            let way = ("plugin:mine", &*format!("s{number:02}"));
            rows.push(row("a", way, 130 + number, Some(50.0)));
            rows.push(row("b", way, 130 + number, None));
        }
        let ranking = Ranking::of(&rows);
        assert_eq!(ranking.points().len(), ranking.ways.len() - 1);
        insta::assert_snapshot!(ranking.text());
    }
}
