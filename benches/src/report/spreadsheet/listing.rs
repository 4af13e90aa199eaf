//! The sheet with all rows and columns of a table.

use csv::StringRecord;
use rust_xlsxwriter::{Format, Worksheet};

use super::{ensure_fits, heading, write_text};
use crate::measure::record::{LACKED, Row, fields};

/// The name of the sheet.
pub(super) const NAME: &str = "Rows";

/// Spreadsheets show 15 digits of a number, so that larger whole numbers would look different from what they are.
const MOST_EXACT: u64 = 999_999_999_999_999;

/// The widest column in pixels.
const WIDEST: u32 = 300;

/// Writes a row for each row of the table, with the same columns: a column that the table is too old for is left out.
/// Numbers are numbers, except those that a spreadsheet would show rounded.
///
/// # Errors
/// If the sheet cannot hold the rows.
pub(super) fn write(rows: &[Row], sheet: &mut Worksheet) -> anyhow::Result<()> {
    let blank = Row::default();
    let (known, _) = fields(&blank)?;
    let lines: Vec<StringRecord> = rows
        .iter()
        .map(|row| Ok(fields(row)?.1))
        .collect::<anyhow::Result<_>>()?;
    let is_there = |&(column, name): &(usize, &str)| {
        let has_value = |line: &StringRecord| !line[column].is_empty();
        !LACKED.contains(&name) || lines.iter().any(has_value)
    };
    let columns: Vec<(usize, &str)> = known.iter().enumerate().filter(is_there).collect();
    ensure_fits(1 + rows.len(), columns.len())?;
    let values = serde_json::to_value(&blank)?;

    sheet.set_name(NAME)?;
    for (place, (_, name)) in (0..).zip(&columns) {
        write_text(sheet, (0, place), name, &heading())?;
    }
    let (whole, other) = (Format::new().set_num_format("0"), Format::new());
    for (number, line) in (1..).zip(&lines) {
        for (place, &(column, name)) in (0..).zip(&columns) {
            let field = &line[column];
            if field.is_empty() {
                continue;
            }
            match value(field).filter(|_| !values[name].is_string()) {
                Some(value) => {
                    let format = if value.fract() == 0.0 { &whole } else { &other };
                    sheet.write_number_with_format(number, place, value, format)?;
                }
                None => write_text(sheet, (number, place), field, &other)?,
            }
        }
    }
    sheet.autofilter(0, 0, rows.len() as u32, columns.len() as u16 - 1)?;
    sheet.set_freeze_panes(1, 1)?;
    sheet.set_autofit_max_width(WIDEST).autofit();
    Ok(())
}

/// The number that a cell holds and shows exactly.
fn value(field: &str) -> Option<f64> {
    match field.parse::<u64>() {
        Ok(whole) => (whole <= MOST_EXACT).then_some(whole as f64),
        Err(_) => field.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}
