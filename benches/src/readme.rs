//! The table of results in the README, made from rows and put between two marks.

use std::fmt::Write;

use anyhow::{Context, ensure};

use crate::record::Row;
use crate::table::{axes, find};

/// What stands before the table.
const BEGIN: &str = "<!-- results: made by `coalesce report`, do not edit -->";
/// What stands behind it.
const END: &str = "<!-- end of results -->";

/// The settings that are shown; the CSV has all.
const SHOWN: [(&str, &str); 8] = [
    ("default", "default"),
    ("split64", "`max_split_size_mb:64`"),
    ("split256", "`max_split_size_mb:256`"),
    ("round8", "`roundup_power2_divisions:8`"),
    ("expand", "`expandable_segments:True`"),
    ("default@110", "default, tight"),
    ("split64@110", "`max_split_size_mb:64`, tight"),
    ("expand@110", "`expandable_segments:True`, tight"),
];

/// The table in Markdown: for each workload what it asks for at its peak, and the efficiency under
/// each of the shown settings, or how many requests failed.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let (workloads, _) = axes(rows);
    let mut table = String::from("| workload | requested, MiB |");
    // Writing to a string cannot fail.
    for (_, title) in SHOWN {
        let _ = write!(table, " {title} |");
    }
    table.push_str("\n|---|---:|");
    table.push_str(&"---:|".repeat(SHOWN.len()));
    table.push('\n');
    for workload in workloads {
        let requested = find(rows, workload, "default").map_or(0, |row| row.peak_requested_bytes);
        let _ = write!(table, "| {workload} | {} |", requested >> 20);
        for (setting, _) in SHOWN {
            let _ = match find(rows, workload, setting) {
                Some(row) if row.ooms > 0 => write!(table, " {} failed |", row.ooms),
                Some(row) => write!(table, " {:.1} % |", 100.0 * row.efficiency),
                None => write!(table, " |"),
            };
        }
        table.push('\n');
    }
    table
}

/// The README with a new table in place of the old one.
///
/// # Errors
/// If the marks are not there, once each and in order.
pub fn splice(readme: &str, table: &str) -> anyhow::Result<String> {
    for mark in [BEGIN, END] {
        let count = readme.matches(mark).count();
        ensure!(
            count == 1,
            "the README has '{mark}' {count} times, not once"
        );
    }
    let (before, rest) = readme.split_once(BEGIN).context("no place for the table")?;
    let (_, after) = rest.split_once(END).context("the marks are out of order")?;
    Ok(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let readme = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        let spliced = splice(&readme, "new\n").unwrap();
        assert_eq!(spliced, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\nrest\n"));
        assert_eq!(splice(&spliced, "new\n").unwrap(), spliced);
        assert!(splice("no marks", "new").is_err());
        assert!(splice(&format!("{END}{BEGIN}"), "new").is_err());
        assert!(splice(&format!("{BEGIN}{BEGIN}{END}"), "new").is_err());
    }
}
