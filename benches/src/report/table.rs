//! Rows as tables of text.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::measure::capacity::Capacity;
use crate::measure::record::{Row, Verdict};

/// How the rows of a table are laid out: a line for each workload, a column for each way to run it.
#[derive(Debug)]
pub struct Layout<'a> {
    rows: &'a [Row],
    several_policies: bool,
    several_addresses: bool,
}

impl<'a> Layout<'a> {
    /// The layout of rows.
    #[must_use]
    pub fn of(rows: &'a [Row]) -> Self {
        let several = |what: fn(&Row) -> &str| {
            let different: BTreeSet<&str> = rows.iter().map(what).collect();
            different.len() > 1
        };
        Self {
            rows,
            several_policies: several(|row| &row.policy),
            several_addresses: several(|row| &row.address_policy),
        }
    }

    /// What a row's line is called.
    #[must_use]
    pub fn line_of(&self, row: &Row) -> String {
        match row.seed {
            Some(seed) => format!("{} #{seed}", row.workload),
            None => row.workload.clone(),
        }
    }

    /// What a row's column is called. The device is told where it matters.
    #[must_use]
    pub fn column_of(&self, row: &Row) -> String {
        let mut name = String::new();
        if self.several_policies {
            name = format!("{}/", row.policy);
        }
        name.push_str(&row.setting);
        if is_tight(row) {
            name = format!("{name}@{}", row.capacity);
        }
        if self.several_addresses {
            name = format!("{name} {}", row.address_policy);
        }
        name
    }

    /// The lines, in the order in which they first appear.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.distinct(|row| self.line_of(row))
    }

    /// The columns in the same order, of those rows alone that are wanted.
    #[must_use]
    pub fn columns(&self, wanted: fn(&Row) -> bool) -> Vec<String> {
        let names = self.rows.iter().filter(|row| wanted(row));
        in_order(names.map(|row| self.column_of(row)))
    }

    /// The row at a place.
    #[must_use]
    pub fn at(&self, line: &str, column: &str) -> Option<&'a Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| self.line_of(row) == line && self.column_of(row) == column)
    }

    /// What the workload of a line asks for at its peak, in bytes.
    #[must_use]
    pub fn demand(&self, line: &str) -> u64 {
        let row = self.rows.iter().find(|row| self.line_of(row) == line);
        row.map_or(0, |row| row.lower_bound_bytes)
    }

    fn distinct(&self, name: impl Fn(&Row) -> String) -> Vec<String> {
        in_order(self.rows.iter().map(name))
    }
}

fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Whether the device has little more than is asked for, so that the row says what fits.
#[must_use]
pub fn is_tight(row: &Row) -> bool {
    row.capacity.parse().is_ok_and(Capacity::is_tight)
}

/// The results as text: peak reserved memory where there is memory to spare, and whether each workload
/// fits where there is not.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let layout = Layout::of(rows);
    let roomy = table(
        "Peak reserved, MiB, with memory to spare",
        &layout,
        &layout.columns(|row| !is_tight(row)),
        |row| match row.is_measured() {
            true => (row.peak_reserved_bytes >> 20).to_string(),
            false => UNSUPPORTED.to_owned(),
        },
    );
    let title = "Tight devices, @ so much of what is requested at the peak (N r: it fits with N \
                 retries; N !: N requests failed; b N: the largest batch found)";
    let tight = table(title, &layout, &layout.columns(is_tight), verdict);
    let mut legend = String::from("Settings\n");
    for line in in_order(rows.iter().map(|row| {
        let conf = if row.conf.is_empty() {
            "(none)"
        } else {
            &row.conf
        };
        format!("  {:12} {conf}\n", row.setting)
    })) {
        legend.push_str(&line);
    }
    [roomy, tight, legend]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// What stands for a figure that the policy cannot have.
pub const UNSUPPORTED: &str = "unsup.";

/// Whether the workload fits, in few letters.
#[must_use]
pub fn verdict(row: &Row) -> String {
    if let Some(batch) = row.largest_batch {
        return format!("b {batch}");
    }
    match row.verdict() {
        Verdict::Fits => "fits".to_owned(),
        Verdict::FitsWithRetries(retries) => format!("{retries} r"),
        Verdict::Fails(ooms) => format!("{ooms} !"),
        Verdict::Unsupported => UNSUPPORTED.to_owned(),
    }
}

/// A table with some of the columns; nothing if there are none.
fn table(title: &str, layout: &Layout<'_>, columns: &[String], cell: fn(&Row) -> String) -> String {
    if columns.is_empty() {
        return String::new();
    }
    let lines = layout.lines();
    let name_width = lines.iter().map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(|column| column.len().max(8)).collect();
    let mut text = format!("{title}\n{:name_width$} requested", "");
    for (column, width) in columns.iter().zip(&widths) {
        // Writing to a string cannot fail.
        let _ = write!(text, " {column:>width$}");
    }
    text.push('\n');
    for line in lines {
        let requested = layout.demand(&line) >> 20;
        let _ = write!(text, "{line:name_width$} {requested:>9}");
        for (column, width) in columns.iter().zip(&widths) {
            let cell = layout.at(&line, column).map_or_else(String::new, cell);
            let _ = write!(text, " {cell:>width$}");
        }
        text.push('\n');
    }
    text
}
