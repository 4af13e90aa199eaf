//! Results as tables of text.

use std::collections::BTreeSet;

use crate::measure::capacity::Capacity;
use crate::measure::record::{Fit, Row};
use crate::text::Table;
use coalesce_alloc::printable::printable;

/// The layout of a table of results: a line for each workload, a column for each way to run it.
#[derive(Debug)]
pub struct Layout<'a> {
    rows: &'a [Row],
    several_policies: bool,
    several_addresses: bool,
    several_releases: bool,
}

impl<'a> Layout<'a> {
    /// The layout of rows.
    #[must_use]
    pub fn of(rows: &'a [Row]) -> Self {
        let several = |what: fn(&Row) -> &str| {
            let stated = rows.iter().map(what).filter(|what| !what.is_empty());
            let different: BTreeSet<&str> = stated.collect();
            different.len() > 1
        };
        Self {
            rows,
            several_policies: several(|row| &row.policy),
            several_addresses: several(|row| &row.address_policy),
            several_releases: several(|row| &row.torch),
        }
    }

    /// The name of a row's line.
    #[must_use]
    pub fn line_of(&self, row: &Row) -> String {
        let name = &row.workload;
        match row.seed {
            Some(seed) => format!("{name} #{seed}"),
            // Without the second mark, it would be the line of another workload with a seed.
            None if ends_like_a_seed(name) => format!("{name} #"),
            None => name.clone(),
        }
    }

    /// The name of a row's column. It includes the policy, the address policy and the release of PyTorch if these
    /// vary, and the capacity if it is tight.
    #[must_use]
    pub fn column_of(&self, row: &Row) -> String {
        if is_tight(row) {
            self.named(row, &format!("@{}", row.capacity))
        } else {
            self.way_of(row)
        }
    }

    /// The name of a row's column without the capacity: rows that differ in it alone have one name.
    pub(crate) fn way_of(&self, row: &Row) -> String {
        self.named(row, "")
    }

    fn named(&self, row: &Row, capacity: &str) -> String {
        let mut name = String::new();
        if self.several_policies {
            name = format!("{}/", row.policy);
        }
        name = format!("{name}{}{capacity}", row.setting);
        if self.several_addresses {
            name = format!("{name} {}", row.address_policy);
        }
        if self.several_releases && !row.torch.is_empty() {
            name = format!("{name} {}", row.torch);
        }
        name
    }

    /// The lines, in the order of their first appearance.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.distinct(|row| self.line_of(row))
    }

    /// The columns of the wanted rows, in the same order.
    #[must_use]
    pub fn columns(&self, wanted: fn(&Row) -> bool) -> Vec<String> {
        let names = self.rows.iter().filter(|row| wanted(row));
        in_order(names.map(|row| self.column_of(row)))
    }

    /// The row of a line and a column.
    #[must_use]
    pub fn at(&self, line: &str, column: &str) -> Option<&'a Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| self.line_of(row) == line && self.column_of(row) == column)
    }

    /// The peak requested by a line's workload, in bytes.
    #[must_use]
    pub fn demand(&self, line: &str) -> u64 {
        let row = self.rows.iter().find(|row| self.line_of(row) == line);
        row.map_or(0, |row| row.lower_bound_bytes)
    }

    fn distinct(&self, name: impl Fn(&Row) -> String) -> Vec<String> {
        in_order(self.rows.iter().map(name))
    }
}

fn ends_like_a_seed(name: &str) -> bool {
    let end = name.rsplit_once(" #").map(|(_, end)| end);
    end.is_some_and(|end| end.bytes().all(|byte| byte.is_ascii_digit()))
}

fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Whether the device is tight, so that the row says whether the workload fits.
#[must_use]
pub fn is_tight(row: &Row) -> bool {
    row.capacity.parse().is_ok_and(Capacity::is_tight)
}

/// The results as text: peak reserved memory on roomy devices, and whether each workload fits on tight ones.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let layout = Layout::of(rows);
    let reserved = |row: &Row| {
        let bytes = row.is_measured().then_some(row.peak_reserved_bytes);
        bytes.map_or_else(|| UNSUPPORTED.to_owned(), |bytes| (bytes >> 20).to_string())
    };
    let roomy = table(&layout, |row| !is_tight(row), reserved);
    let tight = table(&layout, is_tight, verdict);
    let tight_title = "Tight devices, @ capacity relative to the peak requested (N r: fits with N retries; \
                       N !: N requests failed; b N: largest batch found)";
    let settings = rows.iter().map(|row| {
        let setting = printable(&row.setting).to_string();
        match row.conf.as_str() {
            "" => format!("  {setting:12} (none)\n"),
            conf => format!("  {setting:12} {}\n", printable(conf)),
        }
    });
    let parts = [
        roomy.map(|table| format!("Peak reserved on roomy devices, MiB\n{table}")),
        tight.map(|table| format!("{tight_title}\n{table}")),
        Some(format!("Settings\n{}", in_order(settings).concat())),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Stands for a figure if the policy does not support the workload.
pub const UNSUPPORTED: &str = "unsup.";

/// Whether the workload fits, abbreviated.
#[must_use]
pub fn verdict(row: &Row) -> String {
    if let Some(batch) = row.largest_batch {
        return format!("b {batch}");
    }
    match row.fit() {
        Fit::Fits => "fits".to_owned(),
        Fit::FitsWithRetries(retries) => format!("{retries} r"),
        Fit::Fails(ooms) => format!("{ooms} !"),
        Fit::Unsupported => UNSUPPORTED.to_owned(),
    }
}

/// A line for each workload and a column for each way to run it, of the wanted rows; `None` if there are none.
fn table(
    layout: &Layout<'_>,
    wanted: fn(&Row) -> bool,
    cell: fn(&Row) -> String,
) -> Option<String> {
    let columns = layout.columns(wanted);
    if columns.is_empty() {
        return None;
    }
    let headings = ["requested"]
        .into_iter()
        .chain(columns.iter().map(String::as_str));
    let mut table = Table::of([""], headings);
    for line in layout.lines() {
        let requested = (layout.demand(&line) >> 20).to_string();
        let at = |column: &String| layout.at(&line, column).map_or_else(String::new, cell);
        let cells: Vec<String> = columns.iter().map(at).collect();
        table.row([line, requested].into_iter().chain(cells));
    }
    Some(table.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record::tests::row;

    #[test]
    fn different_workloads_have_different_lines() {
        let names = [
            ("x", Some(1)),
            ("x #1", None),
            ("x #1 #", None),
            ("x #", None),
            ("x", None),
            ("x #one", None),
        ];
        let lines = names.map(|(workload, seed)| {
            let workload = workload.to_owned();
            Layout::of(&[]).line_of(&Row {
                workload,
                seed,
                ..row()
            })
        });
        let expected = ["x #1", "x #1 #", "x #1 # #", "x # #", "x", "x #one"];
        assert_eq!(lines, expected);
    }
}
