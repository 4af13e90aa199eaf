//! The sheet that says what was measured and what the cells mean.

use std::collections::BTreeSet;

use indexmap::IndexSet;
use rust_xlsxwriter::{Format, Worksheet};

use super::comparison::Comparison;
use super::{ensure_fits, listing, write_text};
use crate::measure::record::Row;
use crate::report::summary::{ALL, Summary};

/// What the cells of every sheet mean: a line each, behind what it is about.
const MEANINGS: &str = include_str!("meanings.txt");

/// Writes the sheet.
///
/// # Errors
/// If the sheet cannot hold the rows.
pub(super) fn write(
    rows: &[Row],
    summary: &Summary,
    comparisons: &[Comparison<'_>],
    sheet: &mut Worksheet,
) -> anyhow::Result<()> {
    let distinct = |column: fn(&Row) -> &str| {
        let values: IndexSet<&str> = rows.iter().map(column).collect();
        let values = values.into_iter().filter(|value| !value.is_empty());
        values.collect::<Vec<_>>().join(", ")
    };
    let mut lines = vec![
        (
            "what".to_owned(),
            "GPU memory allocators, compared by replaying the same programs. Rows are programs, columns are policies \
             and their settings."
                .to_owned(),
        ),
        (
            "explained in".to_owned(),
            "results/METHODOLOGY.md (how it is measured), results/BIAS.md (whom that favours) and results/README.md \
             (every column of the sheet Rows) of Coalesce"
                .to_owned(),
        ),
        ("sweep".to_owned(), distinct(|row| &row.sweep)),
        ("rows".to_owned(), measured(rows)),
        ("devices".to_owned(), distinct(|row| &row.capacity)),
        ("addresses".to_owned(), distinct(|row| &row.address_policy)),
        ("cost of driver calls".to_owned(), distinct(|row| &row.profile)),
        ("releases of PyTorch".to_owned(), distinct(|row| &row.torch)),
        ("compared with".to_owned(), summary.against.to_string()),
    ];
    let left_out = summary.left_out.len();
    if left_out > 0 {
        let text = format!("{left_out} workloads of other families; --family {ALL} includes them");
        lines.push(("left out".to_owned(), text));
    }
    let titles = comparisons.iter();
    lines.extend(titles.map(|sheet| (format!("sheet {}", sheet.name), sheet.title.clone())));
    let listing = "The table itself: every row and column, on all devices.".to_owned();
    lines.push((format!("sheet {}", listing::NAME), listing));
    let owned = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    let meanings = MEANINGS.lines().filter_map(|line| line.split_once(": "));
    lines.extend(meanings.map(owned));
    let settings: IndexSet<_> = rows.iter().map(|row| (&row.setting, &row.conf)).collect();
    lines.extend(settings.into_iter().map(|(setting, conf)| {
        let conf = if conf.is_empty() { "(none)" } else { conf };
        (format!("setting {setting}"), conf.to_owned())
    }));

    ensure_fits(lines.len(), 2)?;
    sheet.set_name("About")?;
    for (row, (name, text)) in (0..).zip(&lines) {
        write_text(sheet, (row, 0), name, &Format::new().set_bold())?;
        write_text(sheet, (row, 1), text, &Format::new())?;
    }
    sheet.set_column_width(0, 34)?;
    sheet.set_column_width(1, 110)?;
    sheet.set_landscape().set_print_fit_to_pages(1, 0);
    Ok(())
}

/// How many rows there are, and how many the whole sweep has.
fn measured(rows: &[Row]) -> String {
    let sweeps: BTreeSet<(&str, u64)> = rows
        .iter()
        .map(|row| (row.sweep.as_str(), row.cells))
        .collect();
    match sweeps.into_iter().collect::<Vec<_>>().as_slice() {
        [(sweep, cells)] if !sweep.is_empty() => format!("{} of {cells} of the sweep", rows.len()),
        _ => rows.len().to_string(),
    }
}
