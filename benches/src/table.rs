//! Rows as tables of text.

use std::fmt::Write;

use crate::matrix::{Memory, Setting};
use crate::record::Row;

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

/// Peak reserved memory of every workload under every setting: one table for devices with more
/// memory than anybody needs, one for devices with too little.
#[must_use]
pub fn peak_reserved(rows: &[Row], settings: &[Setting]) -> String {
    let is_roomy = |setting: &Setting| setting.memory == Memory::Roomy;
    let (roomy, tight): (Vec<Setting>, Vec<Setting>) = settings.iter().partition(|s| is_roomy(s));
    let roomy = table("Peak reserved, MiB, with memory to spare", rows, &roomy);
    let title = "Peak reserved, MiB, on a device with a tenth more than is requested at the peak \
                 (!N: N requests failed)";
    let tight = table(title, rows, &tight);
    let mut legend = String::from("Settings\n");
    for setting in settings {
        // Writing to a string cannot fail.
        let _ = writeln!(legend, "  {:12} {}", setting.name, setting.conf);
    }
    format!("{roomy}\n{tight}\n{legend}")
}

fn table(title: &str, rows: &[Row], settings: &[Setting]) -> String {
    let (workloads, _) = axes(rows);
    let name_width = workloads.iter().map(|name| name.len()).max().unwrap_or(0);
    let widths: Vec<usize> = settings.iter().map(|s| s.name.len().max(8)).collect();
    let mut text = format!("{title}\n{:name_width$} requested", "");
    for (setting, width) in settings.iter().zip(&widths) {
        let _ = write!(text, " {:>width$}", setting.name);
    }
    text.push('\n');
    for workload in workloads {
        let of_workload = rows.iter().filter(|row| row.workload == workload);
        let requested = of_workload.map(|row| row.peak_requested_bytes).max();
        let requested = requested.unwrap_or(0) >> 20;
        let _ = write!(text, "{workload:name_width$} {requested:>9}");
        for (setting, width) in settings.iter().zip(&widths) {
            let cell = find(rows, workload, setting.name).map_or_else(String::new, cell);
            let _ = write!(text, " {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn cell(row: &Row) -> String {
    let mib = row.peak_reserved_bytes >> 20;
    match row.ooms {
        0 => mib.to_string(),
        ooms => format!("{mib}!{ooms}"),
    }
}
