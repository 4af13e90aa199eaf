//! Rows as tables of text.

use std::fmt::Write;

use crate::matrix::{SETTINGS, Setting};
use crate::record::{Row, Verdict};

/// The names of workloads and of settings in the order in which they first appear.
#[must_use]
pub fn axes(rows: &[Row]) -> (Vec<&str>, Vec<&str>) {
    let (mut workloads, mut settings) = (Vec::new(), Vec::new());
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
        if !settings.contains(&row.setting.as_str()) {
            settings.push(&row.setting);
        }
    }
    (workloads, settings)
}

/// The row of a workload under a setting.
#[must_use]
pub fn find<'a>(rows: &'a [Row], workload: &str, setting: &str) -> Option<&'a Row> {
    rows.iter()
        .find(|row| row.workload == workload && row.setting == setting)
}

/// The results as text: peak reserved memory where there is memory to spare, and whether each workload
/// fits where there is not.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let (tight, roomy): (Vec<Setting>, Vec<Setting>) =
        SETTINGS.into_iter().partition(Setting::is_tight);
    let roomy = table(
        "Peak reserved, MiB, with memory to spare",
        rows,
        &roomy,
        |row| (row.peak_reserved_bytes >> 20).to_string(),
    );
    let title = "A device with a tenth more than is requested at the peak (N r: it fits with N retries; \
                 N !: N requests failed)";
    let tight = table(title, rows, &tight, verdict);
    let mut legend = String::from("Settings\n");
    for setting in SETTINGS {
        let conf = if setting.conf.is_empty() {
            "(none)"
        } else {
            setting.conf
        };
        // Writing to a string cannot fail.
        let _ = writeln!(legend, "  {:12} {conf}", setting.name);
    }
    format!("{roomy}\n{tight}\n{legend}")
}

/// Whether the workload fits, in few letters.
#[must_use]
pub fn verdict(row: &Row) -> String {
    match row.verdict() {
        Verdict::Fits => "fits".to_owned(),
        Verdict::FitsWithRetries(retries) => format!("{retries} r"),
        Verdict::Fails(ooms) => format!("{ooms} !"),
    }
}

fn table(title: &str, rows: &[Row], settings: &[Setting], cell: fn(&Row) -> String) -> String {
    let (workloads, _) = axes(rows);
    let name_width = workloads.iter().map(|name| name.len()).max().unwrap_or(0);
    let widths: Vec<usize> = settings.iter().map(|s| s.name.len().max(8)).collect();
    let mut text = format!("{title}\n{:name_width$} requested", "");
    for (setting, width) in settings.iter().zip(&widths) {
        let _ = write!(text, " {:>width$}", setting.name);
    }
    text.push('\n');
    for workload in workloads {
        let requested = requested(rows, workload) >> 20;
        let _ = write!(text, "{workload:name_width$} {requested:>9}");
        for (setting, width) in settings.iter().zip(&widths) {
            let cell = find(rows, workload, setting.name).map_or_else(String::new, cell);
            let _ = write!(text, " {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

/// What a workload asks for at its peak, in bytes, as seen where nothing failed.
#[must_use]
pub fn requested(rows: &[Row], workload: &str) -> u64 {
    let of_workload = rows.iter().filter(|row| row.workload == workload);
    of_workload
        .map(|row| row.peak_requested_bytes)
        .max()
        .unwrap_or(0)
}
