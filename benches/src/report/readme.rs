//! Tables of results in Markdown, put between marks into a text.

use std::fmt::Write;

use anyhow::{Context, ensure};

use crate::measure::record::{RECORDED, Row, Verdict};
use crate::report::table::{Layout, UNSUPPORTED, is_tight};

/// A table that a text can hold, between a line `<!-- table NAME: … -->` and a line `<!-- end -->`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its name in the mark.
    pub name: &'static str,
    /// The command that makes it, and what from, for the mark.
    pub made_by: String,
    /// The table itself.
    pub markdown: String,
}

/// How the mark before a table begins.
fn mark(name: &str) -> String {
    format!("<!-- table {name}:")
}

/// Whether a text has a place for the table of that name.
#[must_use]
pub fn has_place(text: &str, name: &str) -> bool {
    text.contains(&mark(name))
}

/// The columns of the table of efficiencies; the CSV has all.
const EFFICIENCIES: [(&str, &str); 8] = [
    ("default", "default"),
    ("split64", "`max_split_size_mb:64`"),
    ("split256", "`max_split_size_mb:256`"),
    ("round8", "`roundup_power2_divisions:8`"),
    ("expand", "`expandable_segments:True`"),
    ("default@110%", "default, tight"),
    ("split64@110%", "`max_split_size_mb:64`, tight"),
    ("expand@110%", "`expandable_segments:True`, tight"),
];

/// The columns of the table of least capacities.
const LEAST: [(&str, &str); 4] = [
    ("default@least", "default"),
    ("split64@least", "`max_split_size_mb:64`"),
    ("round8@least", "`roundup_power2_divisions:8`"),
    ("expand@least", "`expandable_segments:True`"),
];

/// For each recorded trace what it asks for at its peak, its efficiency under each of some settings, and
/// whether it fits into a tight device.
#[must_use]
pub fn efficiencies(rows: &[Row]) -> String {
    let recorded = rows.iter().filter(|row| row.family == RECORDED);
    let rows: Vec<Row> = recorded.cloned().collect();
    markdown(&rows, &EFFICIENCIES, efficiency)
}

/// For each workload what it asks for at its peak, and the least device that it can live on.
#[must_use]
pub fn least_capacities(rows: &[Row]) -> String {
    markdown(rows, &LEAST, least)
}

fn markdown(rows: &[Row], columns: &[(&str, &str)], cell: fn(&Row) -> String) -> String {
    let layout = Layout::of(rows);
    let mut table = String::from("| workload | requested, MiB |");
    // Writing to a string cannot fail.
    for (_, title) in columns {
        let _ = write!(table, " {title} |");
    }
    table.push_str("\n|---|---:|");
    table.push_str(&"---:|".repeat(columns.len()));
    table.push('\n');
    for line in layout.lines() {
        let requested = layout.demand(&line) >> 20;
        let _ = write!(table, "| {line} | {requested} |");
        for (name, _) in columns {
            let cell = layout.at(&line, name).map_or_else(String::new, cell);
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    table
}

fn efficiency(row: &Row) -> String {
    match (row.verdict(), row.efficiency) {
        (Verdict::Fails(ooms), _) => format!("{ooms} failed"),
        (Verdict::Unsupported, _) => UNSUPPORTED.to_owned(),
        (Verdict::FitsWithRetries(retries), _) if is_tight(row) => {
            format!("fits, {}", times(retries))
        }
        (Verdict::Fits, _) if is_tight(row) => "fits".to_owned(),
        (_, Some(share)) => format!("{:.1} %", 100.0 * share),
        (_, None) => String::new(),
    }
}

fn least(row: &Row) -> String {
    if !row.is_measured() {
        return UNSUPPORTED.to_owned();
    }
    let more = row.capacity_bytes as f64 / row.lower_bound_bytes as f64 - 1.0;
    let mut cell = format!("{} (+{:.1} %", row.capacity_bytes >> 20, 100.0 * more);
    if row.retries > 0 {
        let _ = write!(cell, ", {}", times(row.retries));
    }
    cell.push(')');
    if row.fails_above_bytes.is_some() {
        cell.push('*');
    }
    cell
}

fn times(retries: u64) -> String {
    match retries {
        1 => "1 retry".to_owned(),
        more => format!("{more} retries"),
    }
}

/// The text with a new table in place of the old one; as it was if it has no place for that table.
///
/// # Errors
/// If there is more than one place, or it has no end.
pub fn splice(text: &str, table: &Table) -> anyhow::Result<String> {
    const END: &str = "<!-- end -->";
    let Table {
        name,
        made_by,
        markdown,
    } = table;
    let begin = mark(name);
    let count = text.matches(&begin).count();
    if count == 0 {
        return Ok(text.to_owned());
    }
    ensure!(
        count == 1,
        "there are {count} places for the table '{name}'"
    );
    let (before, rest) = text.split_once(&begin).context("no place for the table")?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("the table '{name}' has no '{END}' behind it"))?;
    let mark = format!("{begin} made by {made_by}, do not edit -->");
    Ok(format!("{before}{mark}\n\n{markdown}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = "# Title\n<!-- table a: old -->\nold\n<!-- end -->\nrest\n<!-- table b: x -->\n\
                    kept\n<!-- end -->\n";
        let table = |markdown: &str| Table {
            name: "a",
            made_by: "`me`".to_owned(),
            markdown: markdown.to_owned(),
        };
        let spliced = splice(text, &table("new\n")).unwrap();
        let expected = "# Title\n<!-- table a: made by `me`, do not edit -->\n\nnew\n\n<!-- end -->\nrest\n<!-- table b: x -->\nkept\n<!-- end -->\n";
        assert_eq!(spliced, expected);
        assert_eq!(splice(&spliced, &table("new\n")).unwrap(), spliced);
        assert_eq!(splice("no marks", &table("new")).unwrap(), "no marks");
        assert!(
            splice("<!-- table a: -->", &table("new")).is_err(),
            "no end"
        );
        let twice = "<!-- table a: --><!-- end --><!-- table a: --><!-- end -->";
        assert!(splice(twice, &table("new")).is_err());
    }
}
