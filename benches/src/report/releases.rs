//! What programs reserve under each release of PyTorch.

use std::collections::BTreeMap;

use coalesce_alloc::release::{Release, v2};

use crate::measure::record::{Row, RowName};
use crate::report::table::is_tight;
use crate::text::Table;

/// The release that others are compared with, if there are results of it.
const BASE: Release = v2(11);

/// Results of the same cells under several releases.
pub struct Releases<'a> {
    /// Releases with equal results in all cells, oldest first.
    groups: Vec<Vec<Release>>,
    /// The group that the others are compared with.
    base: usize,
    /// The rows of each cell, by release.
    cells: BTreeMap<RowName, BTreeMap<Release, &'a Row>>,
    /// The cells in the order of the table.
    order: Vec<RowName>,
}

/// How far the peak of reserved memory of one cell is from that under the base release.
#[derive(Clone, PartialEq, Debug)]
pub struct Change<'a> {
    /// The row under the compared release.
    pub row: &'a Row,
    /// The change as a share: 0.05 is 5 % more.
    pub share: f64,
}

impl<'a> Releases<'a> {
    /// The results of the reference on roomy and tight devices. Cells that lack a release are left out.
    #[must_use]
    pub fn of(rows: &'a [Row]) -> Self {
        let mut cells: BTreeMap<RowName, BTreeMap<Release, &Row>> = BTreeMap::new();
        let mut order = Vec::new();
        for row in rows {
            let Ok(release) = row.torch.parse() else {
                continue;
            };
            let cell = RowName {
                torch: String::new(),
                ..row.key()
            };
            let of_cell = cells.entry(cell.clone()).or_default();
            if of_cell.is_empty() {
                order.push(cell);
            }
            of_cell.insert(release, row);
        }
        let most = cells.values().max_by_key(|rows| rows.len());
        let releases: Vec<Release> = most
            .map(|rows| rows.keys().copied().collect())
            .unwrap_or_default();
        cells.retain(|_, rows| rows.keys().eq(&releases));
        order.retain(|cell| cells.contains_key(cell));
        let mut groups: Vec<Vec<Release>> = Vec::new();
        for release in releases {
            let is_equal = |group: &Vec<Release>| {
                let other = group.first();
                let mut cells = cells.values();
                other.is_some_and(|other| cells.all(|rows| same(rows[other], rows[&release])))
            };
            match groups.last_mut().filter(|group| is_equal(group)) {
                Some(group) => group.push(release),
                None => groups.push(vec![release]),
            }
        }
        let mut names = groups.iter();
        let base = names.position(|group| group.contains(&BASE)).unwrap_or(0);
        Self {
            groups,
            base,
            cells,
            order,
        }
    }

    /// The releases that others are compared with.
    #[must_use]
    pub fn base(&self) -> String {
        self.name(self.base)
    }

    /// One of the releases that others are compared with: 2.11 if there are results of it.
    #[must_use]
    pub fn base_release(&self) -> Option<Release> {
        let group = self.groups.get(self.base)?;
        let base = group.iter().find(|&&release| release == BASE);
        base.or(group.first()).copied()
    }

    /// The changes of each other group of releases.
    pub fn compared(&self) -> impl Iterator<Item = (String, Vec<Change<'a>>)> {
        let groups = (0..self.groups.len()).filter(|&group| group != self.base);
        groups.map(|group| (self.name(group), self.changes(group)))
    }

    /// The releases of a group: `2.6 to 2.9`.
    fn name(&self, group: usize) -> String {
        match self.groups[group].as_slice() {
            [only] => only.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => String::new(),
        }
    }

    /// The changes of a group, in the order of the table.
    fn changes(&self, group: usize) -> Vec<Change<'a>> {
        let (base, release) = (self.groups[self.base][0], self.groups[group][0]);
        let change = |cell: &RowName| {
            let rows = &self.cells[cell];
            let reserved = |release| rows[&release].peak_reserved_bytes as f64;
            Change {
                row: rows[&release],
                share: reserved(release) / reserved(base) - 1.0,
            }
        };
        self.order.iter().map(change).collect()
    }

    /// A table in Markdown: for each way to run the programs, how the peak of reserved memory on roomy devices differs
    /// from that under the base, and on tight devices how many programs fit and how often all cached memory was returned.
    #[must_use]
    pub fn markdown(&self) -> String {
        let names = (0..self.groups.len()).map(|group| self.name(group));
        let mut table = Table::of(["setting", "device", "addresses"], names);
        let mut done: Vec<[&String; 3]> = Vec::new();
        for cell in &self.order {
            let way = [&cell.setting, &cell.capacity, &cell.address_policy];
            if done.contains(&way) {
                continue;
            }
            done.push(way);
            let of_way = |row: &Row| [&row.setting, &row.capacity, &row.address_policy] == way;
            let cells = (0..self.groups.len()).map(|group| self.summary(group, of_way));
            let left = way.map(String::clone).into_iter();
            table.row(left.chain(cells).collect::<Vec<_>>());
        }
        table.markdown()
    }

    fn summary(&self, group: usize, of_way: impl Fn(&Row) -> bool) -> String {
        let release = self.groups[group][0];
        let rows: Vec<&Row> = self
            .cells
            .values()
            .map(|rows| rows[&release])
            .filter(|row| of_way(row))
            .collect();
        if rows.iter().any(|row| is_tight(row)) {
            let fitting = rows.iter().filter(|row| row.ooms == 0).count();
            let retries: u64 = rows.iter().map(|row| row.retries).sum();
            return format!("{fitting} fit, {retries} retries");
        }
        if group == self.base {
            return String::new();
        }
        let changes = self.changes(group).into_iter();
        let shares: Vec<f64> = changes
            .filter(|change| of_way(change.row) && change.share != 0.0)
            .map(|change| change.share)
            .collect();
        if shares.is_empty() {
            return "same".to_owned();
        }
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let percent = |share: f64| format!("{:+.1}", 100.0 * share);
        let range = match shares.len() {
            1 => percent(most),
            _ => format!("{} to {}", percent(least), percent(most)),
        };
        format!("{} of {}: {range} %", shares.len(), rows.len())
    }
}

/// Whether two rows differ in nothing but the release and their place in the sweep.
fn same(one: &Row, other: &Row) -> bool {
    let figures = |row: &Row| Row {
        torch: String::new(),
        cell: 0,
        ..row.clone()
    };
    figures(one) == figures(other)
}
