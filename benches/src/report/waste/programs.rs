//! The programs of a table of results, with their rows under each policy.

use std::collections::BTreeMap;

use coalesce_alloc::registry::POLICIES;

use crate::measure::record::{Fit, Row};
use crate::report::pareto::name;
use crate::report::table::{UNSUPPORTED, is_tight};

use super::group::Group;

/// Programs that request less at their peak are left out of means: rounding to pages outweighs all else.
pub(crate) const LARGE: u64 = 1 << 30;

/// A program and its rows, by policy and setting.
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    pub(crate) group: Group,
    /// Peak requested in bytes.
    pub(crate) requested: u64,
    /// The same with what private pools keep.
    pub(crate) with_pools: u64,
    roomy: BTreeMap<String, &'a Row>,
    least: BTreeMap<String, &'a Row>,
}

impl<'a> Program<'a> {
    /// The row on a roomy device, if the policy serves the program.
    pub(crate) fn served(&self, way: &str) -> Option<&'a Row> {
        self.roomy.get(way).copied().filter(|row| serves(row))
    }

    /// The row with the minimum device memory, if the policy serves the program.
    pub(crate) fn served_on_least(&self, way: &str) -> Option<&'a Row> {
        self.least.get(way).copied().filter(|row| serves(row))
    }

    /// A figure of the row on a roomy device, or why there is none.
    pub(crate) fn roomy(&self, way: &str, figure: impl Fn(&Row) -> Option<String>) -> String {
        text(self.roomy.get(way), figure)
    }

    /// A figure of the row with the minimum device memory, or why there is none.
    pub(crate) fn least(&self, way: &str, figure: impl Fn(&Row) -> Option<String>) -> String {
        text(self.least.get(way), figure)
    }
}

/// All programs, and the ways to run them.
pub(crate) struct Programs<'a> {
    /// In the order of the rows.
    pub(crate) all: Vec<Program<'a>>,
    /// Policies with their settings.
    pub(crate) ways: Vec<String>,
}

/// Whether a mechanism of the policy is switched off, to measure what it contributes.
fn is_ablated(row: &Row) -> bool {
    row.conf.contains("without:")
}

impl<'a> Programs<'a> {
    /// The programs of rows in which policies run as they are meant to.
    pub(crate) fn of(rows: &'a [Row]) -> Self {
        Self::from_rows(rows.iter().filter(|row| !is_ablated(row)))
    }

    /// The same with the rows in which mechanisms are switched off.
    pub(crate) fn ablated(rows: &'a [Row]) -> Self {
        Self::from_rows(rows.iter())
    }

    fn from_rows(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut programs = Self {
            all: Vec::new(),
            ways: Vec::new(),
        };
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for row in rows {
            let way = name(row);
            if !programs.ways.contains(&way) {
                programs.ways.push(way.clone());
            }
            let place = *places.entry(&row.workload).or_insert_with(|| {
                programs.all.push(Program {
                    name: &row.workload,
                    group: Group::of(row),
                    requested: row.lower_bound_bytes,
                    with_pools: row
                        .lower_bound_with_pools_bytes
                        .unwrap_or(row.lower_bound_bytes),
                    roomy: BTreeMap::new(),
                    least: BTreeMap::new(),
                });
                programs.all.len() - 1
            });
            let program = &mut programs.all[place];
            let of_device = if is_tight(row) {
                &mut program.least
            } else {
                &mut program.roomy
            };
            of_device.insert(way, row);
        }
        programs
    }

    /// Those programs that are served in all ways.
    pub(crate) fn served_by_all<'p>(&self, programs: &[&'p Program<'a>]) -> Vec<&'p Program<'a>> {
        let is_served = |program: &Program<'_>| {
            let mut ways = self.ways.iter();
            ways.all(|way| program.served(way).is_some())
        };
        let programs = programs.iter().copied();
        programs.filter(|program| is_served(program)).collect()
    }

    /// The large programs of some groups.
    pub(crate) fn large(&self, is_wanted: impl Fn(Group) -> bool) -> Vec<&Program<'a>> {
        let all = self.all.iter().filter(|program| program.requested > LARGE);
        all.filter(|program| is_wanted(program.group)).collect()
    }
}

/// Whether the policy serves the program: it has what the program needs, and no request failed. A replay under a policy
/// without private pools places their requests like any other, but a CUDA graph would overwrite what others get of its
/// memory.
pub(crate) fn serves(row: &Row) -> bool {
    row.is_measured() && row.ooms == 0 && !lacks_pools(row)
}

fn lacks_pools(row: &Row) -> bool {
    let mut policies = POLICIES.iter().filter(|policy| policy.name == row.policy);
    let has_pools = policies.any(|policy| policy.private_pools);
    !has_pools && row.pools.is_some_and(|pools| pools > 0)
}

fn text(row: Option<&&Row>, figure: impl Fn(&Row) -> Option<String>) -> String {
    let Some(row) = row else {
        return String::new();
    };
    match row.fit() {
        Fit::Unsupported => UNSUPPORTED.to_owned(),
        _ if lacks_pools(row) => UNSUPPORTED.to_owned(),
        Fit::Fails(ooms) => format!("{ooms} failed"),
        _ => figure(row).unwrap_or_default(),
    }
}
