//! The table of results in the README, made from rows and put between two marks.

use std::fmt::Write;

use anyhow::{Context, ensure};

use crate::matrix::Setting;
use crate::record::{Row, Verdict};
use crate::table::{axes, find, requested};

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

/// The table in Markdown: for each workload what it asks for at its peak, its efficiency under each of
/// the shown settings, and whether it fits into a tight device.
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
        let requested = requested(rows, workload) >> 20;
        let _ = write!(table, "| {workload} | {requested} |");
        for (name, _) in SHOWN {
            let cell = find(rows, workload, name).map_or_else(String::new, cell);
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    table
}

fn cell(row: &Row) -> String {
    let is_tight = Setting::named(&row.setting).is_some_and(|setting| setting.is_tight());
    match (row.verdict(), row.efficiency) {
        (Verdict::Fails(ooms), _) => format!("{ooms} failed"),
        (Verdict::FitsWithRetries(1), _) if is_tight => "fits, 1 retry".to_owned(),
        (Verdict::FitsWithRetries(retries), _) if is_tight => format!("fits, {retries} retries"),
        (Verdict::Fits, _) if is_tight => "fits".to_owned(),
        (_, Some(share)) => format!("{:.1} %", 100.0 * share),
        (_, None) => String::new(),
    }
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
